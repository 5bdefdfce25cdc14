#include "qft/model/config.h"

#include "qft/core/error.h"
#include "qft/core/hub.h"
#include "qft/core/json.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/model/architectures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <tuple>

#include "config_reader.h"
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using nlohmann::json;
using Reader = ConfigReader;
constexpr std::uint64_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxVocabulary = 1 << 24;
constexpr std::int64_t kMaxLayers = 4096;

/// Whether linears carry a bias: what `key` of config.json says, `fallback` where it lacks that; without a key always `fallback`.
struct Bias {
  const char* key;
  bool fallback;
};
constexpr Bias kNever{nullptr, false}, kAlways{nullptr, true}, kAttentionBias{"attention_bias", false},
    kMlpBias{"mlp_bias", false};
/// Which layers may have a sliding window: `some`: use_sliding_window, max_window_layers and layer_types say it; `asked`: all
/// where use_sliding_window is true; `given`: all where sliding_window is a number; `all`: these where config.json lacks it too.
enum class Windows : std::uint8_t { none, some, asked, given, all };

/// How an architecture has experts: `mixtral` in every layer, by names of its own; `qwen` in those that config.json says, perhaps
/// beside a shared one.
enum class Experts : std::uint8_t { none, mixtral, qwen, qwen_shared };

/// One row an architecture: what config.json leaves unsaid.
struct Architecture {
  const char* model_type;
  const char* hf_class;
  Bias qkv, o, mlp;
  bool qk_norm;
  std::int64_t default_head_dim;  ///< 0: hidden_size / num_attention_heads
  Windows windows;
  Experts experts = Experts::none;
};
constexpr auto kArchitectures = std::to_array<Architecture>({
    {"llama", "LlamaForCausalLM", kAttentionBias, kAttentionBias, kMlpBias, false, 0, Windows::none},
    {"mistral", "MistralForCausalLM", kNever, kNever, kNever, false, 0, Windows::all},
    {"mixtral", "MixtralForCausalLM", kNever, kNever, kNever, false, 0, Windows::given, Experts::mixtral},
    {"qwen2", "Qwen2ForCausalLM", kAlways, kNever, kNever, false, 0, Windows::some},
    {"qwen2_moe", "Qwen2MoeForCausalLM", {"qkv_bias", true}, kNever, kNever, false, 0, Windows::some, Experts::qwen_shared},
    {"qwen3", "Qwen3ForCausalLM", kAttentionBias, kAttentionBias, kNever, true, 128, Windows::some},
    {"qwen3_moe", "Qwen3MoeForCausalLM", kAttentionBias, kAttentionBias, kNever, true, 128, Windows::asked, Experts::qwen},
});
/// What transformers takes where config.json has no sliding_window (null is none), or no max_window_layers.
constexpr std::int64_t kDefaultWindow = 4096, kDefaultFullLayers = 28;

const Architecture& architecture_of(const std::string& model_type, const std::string& where) {
  std::string known;
  for (const auto& row : kArchitectures) {
    if (model_type == row.model_type) return row;
    known += known.empty() ? row.model_type : std::string(", ") + row.model_type;
  }
  fail("{}: model_type '{}' is not implemented (implemented: {})", where, model_type, known);
}

RopeConfig read_rope(const Reader& config) {
  RopeConfig rope;
  rope.theta = config.number("rope_theta", 10000.0);
  // transformers 5 writes rope_parameters (theta inside); 4.x writes rope_theta and rope_scaling.
  const json* scaling = config.find("rope_parameters");
  if (scaling == nullptr) scaling = config.find("rope_scaling");
  if (scaling == nullptr) return rope;
  require(scaling->is_object(), "{}: rope scaling is {}, expected an object", config.where(), scaling->dump());
  const Reader reader(*scaling, config.where() + ": rope_scaling");
  rope.theta = reader.number("rope_theta", rope.theta);
  const std::string type = reader.text("rope_type", reader.text("type", "default"));
  if (type == "default") return rope;
  require(type == "llama3", "{}: rope scaling '{}' is not implemented (implemented: default, llama3)", config.where(), type);
  RopeConfig::Llama3 llama3;
  llama3.factor = reader.number("factor", llama3.factor);
  llama3.low_freq_factor = reader.number("low_freq_factor", llama3.low_freq_factor);
  llama3.high_freq_factor = reader.number("high_freq_factor", llama3.high_freq_factor);
  llama3.original_max_position_embeddings =
      reader.integer("original_max_position_embeddings", llama3.original_max_position_embeddings);
  rope.llama3 = llama3;
  return rope;
}

/// ModelConfig::windows.
std::vector<std::int64_t> read_windows(const Reader& config, const Architecture& arch, std::int64_t layers) {
  const bool always = arch.windows == Windows::all || arch.windows == Windows::given;
  const bool wanted = always ? arch.windows == Windows::all || config.find("sliding_window") != nullptr
                             : config.boolean("use_sliding_window", false);
  require(!wanted || arch.windows != Windows::none,
          "{}: use_sliding_window is true, but {} has no sliding window: set it to false", config.where(), arch.model_type);
  const std::int64_t window = wanted && !config.is_null("sliding_window") ? config.positive("sliding_window", kDefaultWindow) : 0;
  const std::int64_t full =
      arch.windows == Windows::some ? std::min(layers, config.integer("max_window_layers", kDefaultFullLayers)) : 0;
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), window);
  std::fill_n(windows.begin(), full, 0);
  const json* types = config.find("layer_types");
  if (types == nullptr) return windows;
  require(types->is_array(), "{}: layer_types is {}, expected a list of {} kinds of attention", config.where(), types->dump(),
          layers);
  require(std::ssize(*types) == layers, "{}: layer_types has {} entries, but num_hidden_layers is {}", config.where(),
          types->size(), layers);
  const std::string no_window = arch.windows == Windows::none ? fmt::format("{} has no sliding window", arch.model_type)
                                : wanted                      ? "sliding_window is null"
                                                              : "use_sliding_window is not true";
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool sliding = (*types)[i] == "sliding_attention";
    require(sliding || (*types)[i] == "full_attention",
            "{}: layer_types[{}] is {}, which is not implemented (implemented: full_attention, sliding_attention)",
            config.where(), i, (*types)[i].dump());
    require(!sliding || window > 0, "{}: layer_types[{}] is \"sliding_attention\", but {}", config.where(), i, no_window);
    require(sliding || window == 0 || arch.windows == Windows::some,
            "{}: layer_types[{}] is \"full_attention\", but every layer of {} has the sliding_window of {}: remove layer_types, "
            "or set "
            "sliding_window to null",
            config.where(), i, arch.model_type, window);
    windows[i] = sliding ? window : 0;
  }
  return windows;
}

/// Sizes of experts, and which layers have them.
void read_experts(const Reader& config, const Architecture& arch, ModelConfig& c) {
  if (arch.experts == Experts::none) return;
  ExpertsConfig& e = c.experts;
  const bool mixtral = arch.experts == Experts::mixtral;
  // Newer files of Qwen's models have Mixtral's name.
  e.count = config.size(config.find("num_experts") != nullptr ? "num_experts" : "num_local_experts");
  e.per_token = config.size("num_experts_per_tok");
  require(e.per_token <= e.count, "{}: num_experts_per_tok is {}, more than the {} experts", config.where(), e.per_token,
          e.count);
  e.intermediate_size = mixtral ? c.intermediate_size : config.size("moe_intermediate_size");
  if (arch.experts == Experts::qwen_shared) e.shared_size = config.size("shared_expert_intermediate_size");
  e.normalise = mixtral || config.boolean("norm_topk_prob", false);
  if (config.boolean("output_router_logits", false)) e.aux_loss_coef = config.number("router_aux_loss_coef", 0.001);
  const double jitter = config.number("router_jitter_noise", 0.0);
  require(jitter == 0.0, "{}: router_jitter_noise {} is not implemented: set it to 0", config.where(), jitter);
  c.sparse.assign(static_cast<std::size_t>(c.num_layers), true);
  if (mixtral) {
    e.block = "block_sparse_moe";
    std::tie(e.gate, e.up, e.down) = std::make_tuple("w1", "w3", "w2");
    return;
  }
  const std::int64_t step = config.positive("decoder_sparse_step", 1);
  for (std::size_t i = 0; i < c.sparse.size(); ++i) c.sparse[i] = (static_cast<std::int64_t>(i) + 1) % step == 0;
  const json* dense = config.find("mlp_only_layers");
  if (dense == nullptr) return;
  require(dense->is_array(), "{}: mlp_only_layers is {}, expected a list of layers", config.where(), dense->dump());
  for (const json& layer : *dense) {
    require(layer.is_number_integer() && layer >= 0, "{}: mlp_only_layers holds {}, expected numbers of layers", config.where(),
            layer.dump());
    if (layer.get<std::int64_t>() < c.num_layers) c.sparse[layer.get<std::size_t>()] = false;
  }
}

std::vector<std::int32_t> read_token_ids(const json* value, const std::string& where) {
  std::vector<std::int32_t> ids;
  if (value == nullptr) return ids;
  const json list = value->is_array() ? *value : json::array({*value});
  for (const json& id : list) {
    require(id.is_number_integer() && id >= 0 && id <= std::numeric_limits<std::int32_t>::max(),
            "{}: eos_token_id holds {}, expected token ids", where, id.dump());
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

void refuse_unimplemented(const Reader& reader) {
  const std::string act = reader.text("hidden_act", "silu");
  require(act == "silu", "{}: hidden_act '{}' is not implemented (implemented: silu)", reader.where(), act);
  require(reader.find("quantization_config") == nullptr,
          "{}: quantization_config: quantised base models are not implemented; use the unquantised model", reader.where());
}

std::string read_text(const std::filesystem::path& dir, const char* name) {
  const auto path = member_of(dir, name);
  if (is_named_as_on_a_hub(dir.string()))
    fail_config("there is no folder '{}'. {}", dir.string(), how_to_fetch("model", dir.string()));
  if (!std::filesystem::exists(dir)) fail_config("there is no model folder '{}'", dir.string());
  if (!std::filesystem::exists(path))
    fail_config("cannot read '{}': is '{}' a model directory in Hugging Face layout?", path.string(), dir.string());
  return io::read_text_file(path, kMaxConfigBytes);
}

json parse_object(const std::string& text, const std::string& where) {
  json object = parse_json(text, where);
  require(object.is_object(), "{}: expected a JSON object", where);
  return object;
}

}  // namespace

std::vector<std::string_view> architectures() {
  std::vector<std::string_view> names;
  for (const auto& row : kArchitectures) names.emplace_back(row.model_type);
  return names;
}

std::vector<double> ModelConfig::inverse_frequencies() const {
  std::vector<double> freq(static_cast<std::size_t>(head_dim / 2));
  for (std::size_t i = 0; i < freq.size(); ++i) {
    // fp32 as transformers computes it: the tables then agree to the last bit.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const float base = std::pow(static_cast<float>(rope.theta), exponent);
    float f = 1.0f / base;
    if (rope.llama3) {
      const auto& s = *rope.llama3;
      const double old_context = static_cast<double>(s.original_max_position_embeddings);
      const double wavelength = 2.0 * std::numbers::pi / f;
      if (wavelength > old_context / s.low_freq_factor) {
        f = static_cast<float>(f / s.factor);
      } else if (wavelength >= old_context / s.high_freq_factor) {
        const double smooth = (old_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        f = static_cast<float>((1.0 - smooth) * f / s.factor + smooth * f);
      }
    }
    freq[i] = f;
  }
  return freq;
}

ModelConfig ModelConfig::parse(const std::string& text, const std::string& where) {
  const json object = parse_object(text, where);
  const Reader reader(object, where);
  ModelConfig c;
  c.model_type = reader.text("model_type", "");
  const Architecture& arch = architecture_of(c.model_type, where);
  refuse_unimplemented(reader);
  c.architecture = arch.hf_class;
  c.hidden_size = reader.size("hidden_size");
  c.intermediate_size = reader.size("intermediate_size");
  c.num_layers = reader.positive("num_hidden_layers");
  c.num_heads = reader.size("num_attention_heads");
  c.num_kv_heads = reader.size("num_key_value_heads", c.num_heads);
  c.head_dim = reader.size("head_dim", arch.default_head_dim ? arch.default_head_dim : c.hidden_size / c.num_heads);
  c.vocab_size = reader.positive("vocab_size");
  c.max_position_embeddings = reader.positive("max_position_embeddings", 2048);
  c.rms_norm_eps = reader.number("rms_norm_eps", 1e-6);
  c.attention_dropout = reader.number("attention_dropout", 0.0);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  const auto has_bias = [&](Bias bias) { return bias.key ? reader.boolean(bias.key, bias.fallback) : bias.fallback; };
  c.qkv_bias = has_bias(arch.qkv);
  c.o_bias = has_bias(arch.o);
  c.mlp_bias = has_bias(arch.mlp);
  c.qk_norm = arch.qk_norm;
  c.rope = read_rope(reader);
  c.eos_token_ids = read_token_ids(reader.find("eos_token_id"), where);
  c.raw = text;
  require(c.num_layers <= kMaxLayers, "{}: 'num_hidden_layers' is {}, more than {}: is the file damaged?", where, c.num_layers,
          kMaxLayers);
  c.windows = read_windows(reader, arch, c.num_layers);
  read_experts(reader, arch, c);
  require(c.vocab_size <= kMaxVocabulary, "{}: 'vocab_size' is {}, more than {}: is the file damaged?", where, c.vocab_size,
          kMaxVocabulary);
  require(c.num_heads * c.head_dim <= kMaxSize, "{}: {} heads of {} are more than {} columns: is the file damaged?", where,
          c.num_heads, c.head_dim, kMaxSize);
  require(c.num_heads % c.num_kv_heads == 0, "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
          c.num_heads, c.num_kv_heads);
  require(c.head_dim % 2 == 0, "{}: head_dim {} is odd: rotary embeddings need an even one", where, c.head_dim);
  return c;
}

ModelConfig ModelConfig::load(const std::filesystem::path& dir) {
  const auto path = dir / "config.json";
  ModelConfig config = parse(read_text(dir, "config.json"), path.string());
  const auto generation = dir / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const json object = parse_object(read_text(dir, "generation_config.json"), generation.string());
    const auto it = object.find("eos_token_id");
    if (it != object.end() && !it->is_null()) config.eos_token_ids = read_token_ids(&*it, generation.string());
  }
  return config;
}

}  // namespace qft::model
