// Exports a model with its layers' linears as nf4 with double quantisation, in the tensors that transformers and bitsandbytes
// save and load.
#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/core/progress.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized.h"
#include "qft/ops/quantized_tables.h"

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "export_formats.h"
#include "merged_values.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

namespace fs = std::filesystem;

constexpr ops::Quantization kKind{.format = ops::QuantFormat::nf4, .nested = true};
constexpr std::size_t kStateBytes = 256;  ///< length of a weight's description: JSON padded with blanks
constexpr const char* kState = ".quant_state.bitsandbytes__nf4";

/// Returns the names of the tensors to write in 4 bits.
std::set<std::string> quantised_tensors(const ModelSpec& plain) {
  if (plain.config.experts.count > 0 || plain.config.delta_net.key_heads > 0)
    fail_config(
        "export_quantization_bit is not implemented for models with experts or delta nets, such as this {}: export in 16 bits",
        plain.config.architecture);
  std::set<std::string> names;
  const ModelSpec spec = ModelSpec::build(plain.config, Finetuning::full, {}, WeightStorage::in(kKind));
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params)
      if (p.is_quantized()) names.insert(p.name);
  return names;
}

ops::QuantizedLayout layout_of(const ModelTensor& tensor) {
  return ops::QuantizedLayout::of(kKind, tensor.rows(), tensor.columns());
}

/// Returns the tensors of one weight, in this order.
std::vector<io::TensorSpec> specs_of(const ModelTensor& tensor) {
  const ops::QuantizedLayout layout = layout_of(tensor);
  const std::int64_t blocks = layout.blocks(), nested = (blocks + ops::kNestedBlock - 1) / ops::kNestedBlock;
  return {{tensor.name, DType::u8, {layout.code_bytes(), 1}},
          {tensor.name + ".absmax", DType::u8, {blocks}},
          {tensor.name + ".nested_absmax", DType::f32, {nested}},
          {tensor.name + ".quant_map", DType::f32, {16}},
          {tensor.name + ".nested_quant_map", DType::f32, {256}},
          {tensor.name + kState, DType::u8, {static_cast<std::int64_t>(kStateBytes)}}};
}

std::string state_of(const ModelTensor& tensor, DType type, float offset) {
  const nlohmann::ordered_json state{{"quant_type", "nf4"},
                                     {"blocksize", ops::kFourBitBlock},
                                     {"dtype", torch_name(type)},
                                     {"shape", tensor.shape},
                                     {"nested_blocksize", ops::kNestedBlock},
                                     {"nested_dtype", "float32"},
                                     {"nested_offset", static_cast<double>(offset)}};
  std::string text = state.dump();
  QFT_ASSERT(text.size() <= kStateBytes, "quant_state has {} bytes: {}", text.size(), text);
  text.resize(kStateBytes, ' ');
  return text;
}

/// Squared norms, summed over all linears.
struct Squares {
  double weights = 0.0, rounding = 0.0, adapter = 0.0;
};

void write_quantised(MergedModel& model, const ModelTensor& tensor, DType type, io::ModelWriter& writer, Squares& squares) {
  const ops::QuantizedLayout layout = layout_of(tensor);
  const at::Tensor values = merged_values(model, tensor), bytes = at::empty({layout.bytes}, at::kByte);
  try {
    ops::quantize(values.view({layout.rows, layout.columns}), layout, bytes);
  } catch (const Error& e) {
    fail("'{}': {}", tensor.name, e.what());
  }
  const auto* from = bytes.data_ptr<std::uint8_t>();
  const std::int64_t blocks = layout.blocks(), nested = (blocks + ops::kNestedBlock - 1) / ops::kNestedBlock;
  float offset = 0.0F;
  std::memcpy(&offset, from + layout.nested_scales + 4 * nested, sizeof(offset));
  const std::string state = state_of(tensor, type, offset);
  writer.append(from, static_cast<std::uint64_t>(layout.code_bytes()));
  writer.append(from + layout.scales, static_cast<std::uint64_t>(blocks));
  writer.append(from + layout.nested_scales, static_cast<std::uint64_t>(4 * nested));
  writer.append(ops::four_bit_values(kKind.format).data(), 16 * sizeof(float));
  writer.append(ops::dynamic_map(true).data(), 256 * sizeof(float));
  writer.append(state.data(), state.size());

  const auto square = [](const at::Tensor& t) { return std::pow(t.norm().item<double>(), 2); };
  const at::Tensor decoded = at::empty({values.numel()}, at::kFloat);
  ops::dequantize(bytes, layout, decoded);
  squares.weights += square(values);
  squares.rounding += square(decoded.sub_(values));
  if (model.changes(*tensor.param)) squares.adapter += square(values - base_values(model, tensor));
}

void write_plain(MergedModel& model, const ModelTensor& tensor, DType type, io::ModelWriter& writer) {
  const at::Tensor values = merged_values(model, tensor);
  std::vector<char> bytes(static_cast<std::size_t>(values.numel()) * size_of(type));
  from_float(type, values.data_ptr<float>(), static_cast<std::size_t>(values.numel()), bytes.data());
  writer.append(bytes.data(), bytes.size());
}

/// Writes the configuration of transformers' BitsAndBytesConfig.
void set_config(io::Storage& storage, const fs::path& dir, DType type, bool untied) {
  auto config = nlohmann::ordered_json::parse(io::read_text_file(dir / io::kModelConfigFile));
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = torch_name(type);
  config["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                   {"load_in_4bit", true},
                                   {"load_in_8bit", false},
                                   {"bnb_4bit_quant_type", "nf4"},
                                   {"bnb_4bit_use_double_quant", true},
                                   {"bnb_4bit_compute_dtype", torch_name(type)},
                                   {"bnb_4bit_quant_storage", "uint8"},
                                   {"llm_int8_skip_modules", nlohmann::ordered_json::array({"lm_head"})}};
  if (untied) config["tie_word_embeddings"] = false;
  io::write_file(storage, dir / io::kModelConfigFile, config.dump(2) + "\n");
}

}  // namespace

ExportReport export_bitsandbytes(io::Storage& storage, const ExportRequest& request, MergedModel& model, const fs::path& target) {
  const std::set<std::string> quantised = quantised_tensors(model.spec());
  const DType type = request.dtype.value_or(model.tensors().front().type);
  std::vector<io::TensorSpec> specs;
  for (const ModelTensor& tensor : model.tensors()) {
    if (!quantised.contains(tensor.param->name))
      specs.push_back({tensor.name, type, tensor.shape});
    else
      for (io::TensorSpec& spec : specs_of(tensor)) specs.push_back(std::move(spec));
  }
  ExportReport report;
  report.tensors = std::ssize(model.tensors());
  for (const io::TensorSpec& spec : specs) report.bytes += spec.bytes();
  io::ModelWriter writer(storage, target, std::move(specs), request.max_shard_bytes);
  Progress progress("export", report.tensors);
  std::int64_t done = 0;
  Squares squares;
  for (const ModelTensor& tensor : model.tensors()) {
    const bool quantise = quantised.contains(tensor.param->name);
    report.merged += model.changes(*tensor.param) ? 1 : 0;
    report.converted += quantise || type != tensor.type ? 1 : 0;
    if (quantise)
      write_quantised(model, tensor, type, writer, squares);
    else
      write_plain(model, tensor, type, writer);
    progress.update(++done);
  }
  writer.finish();
  if (squares.weights > 0.0) {
    report.rounding = std::sqrt(squares.rounding / squares.weights);
    report.adapter = std::sqrt(squares.adapter / squares.weights);
  }
  write_config_files(storage, request, model, target);
  io::copy_existing(storage, request.adapter.empty() ? request.base : request.adapter, target, io::kValueHeadFiles);
  set_config(storage, target, type, model.spec().untied);
  return report;
}

}  // namespace qft::model
