// Exports a model for llama.cpp: names, row order and metadata as in its convert_hf_to_gguf.py, for the architectures below.
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/io/gguf.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export_formats.h"
#include "gguf_tokenizer.h"
#include "merged_values.h"
#include "row_parts.h"

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using io::GgufType;

struct Name {
  std::string_view ours, theirs;
};
constexpr Name kOuter[] = {{kEmbedTokens, "token_embd.weight"}, {kFinalNorm, "output_norm.weight"}, {kLmHead, "output.weight"}};
constexpr Name kInLayer[] = {{"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
                             {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
                             {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
                             {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
                             {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                             {"mlp.down_proj", "ffn_down"}};
/// The implemented architectures; llama.cpp uses the same names.
constexpr std::string_view kArchitectures[] = {"llama", "qwen2", "qwen3"};
constexpr const char* kRopeFactors = "rope_freqs.weight";

void require_implemented(const ModelConfig& c) {
  if (std::ranges::find(kArchitectures, c.model_type) == std::end(kArchitectures))
    fail_config("GGUF export is implemented for llama, qwen2 and qwen3, but this is a {}: export as safetensors", c.model_type);
  const char* what = std::ranges::any_of(c.windows, [](std::int64_t n) { return n > 0; }) ? "sliding windows"
                     : c.rope.yarn                                                        ? "YaRN"
                     : c.rope.dynamic                                                     ? "dynamic rope scaling"
                     : c.model_type == "qwen3" && c.qkv_bias                              ? "biases of a qwen3"
                                                                                          : nullptr;
  if (what != nullptr) fail_config("GGUF export with {} is not implemented: export as safetensors", what);
}

std::string gguf_name(const ParamSpec& p, int layer) {
  for (const Name& name : kOuter)
    if (p.path == name.ours) return std::string(name.theirs);
  const std::string module = p.path.substr(0, p.path.rfind('.'));
  for (const Name& name : kInLayer)
    if (module == name.ours) return fmt::format("blk.{}.{}{}", layer, name.theirs, p.path.substr(module.size()));
  fail("GGUF has no name for '{}'", p.name);
}

GgufType gguf_type(DType type) {
  return type == DType::f16 ? GgufType::f16 : type == DType::bf16 ? GgufType::bf16 : GgufType::f32;
}

/// Returns a tensor's type: fp32 for vectors; fp16 for rows that are not a multiple of the block size, as in llama.cpp's script.
GgufType type_of(const ModelTensor& tensor, GgufType matrices) {
  if (tensor.shape.size() < 2) return GgufType::f32;
  return matrices == GgufType::q8_0 && tensor.columns() % io::kQ8Block != 0 ? GgufType::f16 : matrices;
}

/// llama.cpp rotates adjacent columns of a llama's heads, transformers two halves: reorders the rows of q and k, and their
/// biases.
void interleave_halves(std::vector<float>& values, std::int64_t heads, std::int64_t head_dim) {
  const std::size_t width = values.size() / static_cast<std::size_t>(heads * head_dim);
  std::vector<float> to(values.size());
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < head_dim; ++i) {
      const std::int64_t source = h * head_dim + i % 2 * (head_dim / 2) + i / 2;
      std::copy_n(values.begin() + source * static_cast<std::int64_t>(width), width,
                  to.begin() + (h * head_dim + i) * static_cast<std::int64_t>(width));
    }
  values.swap(to);
}

/// Returns how much slower each pair of columns rotates under Llama 3's scaling.
std::vector<float> rope_factors(const ModelConfig& c) {
  const std::vector<double> scaled = c.inverse_frequencies();
  std::vector<float> factors;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const double plain = std::pow(c.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.rotary_dim()));
    factors.push_back(static_cast<float>(plain / scaled[i]));
  }
  return factors;
}

io::GgufMetadata metadata_of(const ModelConfig& c, const ExportRequest& request, GgufType matrices) {
  const auto number = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
  const std::uint32_t file_type = matrices == GgufType::q8_0   ? 7
                                  : matrices == GgufType::bf16 ? 32
                                  : matrices == GgufType::f16  ? 1
                                                               : 0;
  io::GgufMetadata metadata{{"general.architecture", c.model_type},
                            {"general.type", std::string("model")},
                            {"general.name", request.target.filename().string()},
                            {"general.file_type", file_type},
                            {"general.quantization_version", 2U}};
  const auto add = [&](const char* key, io::GgufValue value) {
    metadata.emplace_back(c.model_type + "." + key, std::move(value));
  };
  add("block_count", number(c.num_layers));
  add("context_length", number(c.max_position_embeddings));
  add("embedding_length", number(c.hidden_size));
  add("feed_forward_length", number(c.intermediate_size));
  add("attention.head_count", number(c.num_heads));
  add("attention.head_count_kv", number(c.num_kv_heads));
  add("attention.layer_norm_rms_epsilon", static_cast<float>(c.rms_norm_eps));
  add("attention.key_length", number(c.head_dim));
  add("attention.value_length", number(c.head_dim));
  add("rope.dimension_count", number(c.rotary_dim()));
  add("rope.freq_base", static_cast<float>(c.rope.theta));
  add("vocab_size", number(c.vocab_size));
  if (c.rope.linear != 1.0) {
    add("rope.scaling.type", std::string("linear"));
    add("rope.scaling.factor", static_cast<float>(c.rope.linear));
  }
  for (auto& entry : gguf_tokenizer({request.tokenizer, request.base, request.changes}, c.vocab_size))
    metadata.push_back(std::move(entry));
  return metadata;
}

std::vector<float> values_of(MergedModel& model, const ModelTensor& tensor) {
  const at::Tensor values = merged_values(model, tensor);
  std::vector<float> all(values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
  const ModelConfig& c = model.spec().config;
  if (c.model_type != "llama") return all;
  if (tensor.param->path.starts_with("self_attn.q_proj.")) interleave_halves(all, c.num_heads, c.head_dim);
  if (tensor.param->path.starts_with("self_attn.k_proj.")) interleave_halves(all, c.num_kv_heads, c.head_dim);
  return all;
}

}  // namespace

ExportReport export_gguf(io::Storage& storage, const ExportRequest& request, MergedModel& model, const fs::path& target) {
  const ModelConfig& c = model.spec().config;
  require_implemented(c);
  const GgufType matrices = request.format == ExportFormat::gguf_q8_0
                                ? GgufType::q8_0
                                : gguf_type(request.dtype.value_or(model.tensors().front().type));
  std::vector<io::GgufTensor> tensors;
  std::vector<int> layers;
  for (const UnitSpec& unit : model.spec().units)
    for (const ParamSpec& p : unit.params)
      if (p.role == Role::base) layers.push_back(unit.layer);
  QFT_ASSERT(layers.size() == model.tensors().size(), "{} parameters, but {} tensors", layers.size(), model.tensors().size());
  ExportReport report;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ModelTensor& tensor = model.tensors()[i];
    tensors.push_back({gguf_name(*tensor.param, layers[i]), type_of(tensor, matrices), tensor.shape});
  }
  const std::vector<float> factors = c.rope.llama3 ? rope_factors(c) : std::vector<float>();
  if (!factors.empty()) tensors.push_back({kRopeFactors, GgufType::f32, {static_cast<std::int64_t>(factors.size())}});
  const std::vector<io::GgufTensor> plan = tensors;
  io::GgufWriter writer(storage, target / fmt::format("model-{}.gguf", name_of(matrices)), metadata_of(c, request, matrices),
                        std::move(tensors));
  report.tensors = std::ssize(plan);
  Progress progress("export", report.tensors);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const ModelTensor& tensor = model.tensors()[i];
    const std::vector<float> values = values_of(model, tensor);
    std::vector<char> bytes(plan[i].bytes());
    const auto columns = static_cast<std::uint64_t>(tensor.columns());
    for_row_parts(tensor.rows(), [&](std::int64_t begin, std::int64_t end) {
      const auto first = static_cast<std::uint64_t>(begin) * columns, count = static_cast<std::uint64_t>(end - begin) * columns;
      io::to_gguf(plan[i].type, values.data() + first, count, bytes.data() + io::bytes_of(plan[i].type, first));
    });
    writer.append(bytes.data(), bytes.size());
    report.bytes += bytes.size();
    report.merged += model.changes(*tensor.param) ? 1 : 0;
    report.converted += plan[i].type != gguf_type(tensor.type) ? 1 : 0;
    progress.update(static_cast<std::int64_t>(i) + 1);
  }
  if (!factors.empty()) writer.append(factors.data(), factors.size() * sizeof(float));
  writer.finish();
  return report;
}

}  // namespace qft::model
