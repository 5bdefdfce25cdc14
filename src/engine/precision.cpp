#include "qft/engine/precision.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/device/backends.h"
#include "qft/device/device.h"
#include "qft/device/scalar_type.h"

#include <utility>

namespace qft::engine {
namespace {

/// Returns the type of the first tensor with a floating type (not quantised).
at::ScalarType file_type(const io::ModelFiles& files) {
  for (const std::string& name : files.names())
    if (const DType type = files.at(name).entry->dtype; is_floating(type)) return device::scalar_type_of(type);
  fail("'{}' holds no tensors of a floating type", files.dir().string());
}

/// If training computes in fp32 only because no key sets a type, and the files have 16 bits, returns a note with both types and
/// the key to set. Else returns an empty string.
std::string fp32_notice(const config::RunConfig& config, const io::ModelFiles& files) {
  const auto& t = config.training;
  const bool said = config.is_given("bf16") || t.bf16 || t.fp16 || t.pure_bf16 || t.compute_dtype != "auto";
  const at::ScalarType type = file_type(files);
  if (said || (type != at::kBFloat16 && type != at::kHalf)) return {};
  return fmt::format(
      "the model's files are in {}, but training computes in float32, because no key sets a type: bf16: true halves the memory "
      "and is faster (bf16: false keeps float32)",
      torch_name(device::dtype_of(type)));
}

/// Returns `types` if the devices of all ranks support them (`all_bf16`). If a device lacks bf16: replaces bf16 by fp32 on all
/// ranks if only the model's files asked for bf16; if a key asks for bf16, the ranks without it throw ConfigError.
ChosenPrecision supported(ChosenPrecision types, const config::RunConfig& config, Use use, c10::Device device, bool all_bf16) {
  if (types.precision.compute != at::kBFloat16 || all_bf16) return types;
  const auto& t = config.training;
  const bool by_name = use == Use::inference && dtype_from_torch(config.model.infer_dtype).has_value();
  if (!by_name && config.compute_dtype() != DType::bf16)
    return {optim::Precision::fp32(), fmt::format("{}, in bfloat16, which {} does not support", types.reason,
                                                  has_bf16(device) ? "another rank's device" : "this device")};
  if (has_bf16(device)) return types;
  const char* key = by_name ? "infer_dtype" : t.pure_bf16 ? "pure_bf16" : t.bf16 ? "bf16" : "compute_dtype";
  const auto given = config.given.find(key);
  fail_config("{}{} asks for bf16, which this device does not support ({}): set {} instead",
              given == config.given.end() ? "" : given->second + ": ", key, device::describe(device),
              by_name ? "infer_dtype: float16" : "fp16: true");
}

}  // namespace

bool has_bf16(c10::Device device) {
  return device.is_cpu() || device::facts_of(device).bf16;
}

optim::Precision training_precision(const config::RunConfig& config) {
  switch (config.compute_dtype()) {
    case DType::f64:
      return optim::Precision::fp64();
    case DType::f32:
      return optim::Precision::fp32();
    case DType::f16:
      return optim::Precision::fp16();
    case DType::bf16:
      return config.fp32_masters() ? optim::Precision::bf16() : optim::Precision::pure_bf16();
    default:
      break;
  }
  fail_config("compute dtype {} is not implemented: use bf16, fp16, pure_bf16 or fp32", safetensors_name(config.compute_dtype()));
}

ChosenPrecision inference_precision(const config::RunConfig& config, const io::ModelFiles& files) {
  const auto throughout = [](at::ScalarType type) { return optim::Precision{type, type, type, type}; };
  const auto& t = config.training;
  if (const auto named = dtype_from_torch(config.model.infer_dtype))
    return {throughout(device::scalar_type_of(*named)), "infer_dtype"};
  for (const auto& [key, asks] :
       {std::pair{"compute_dtype", t.compute_dtype != "auto"}, {"bf16", t.bf16}, {"pure_bf16", t.pure_bf16}, {"fp16", t.fp16}})
    if (asks) return {training_precision(config), key};
  const at::ScalarType type = file_type(files);
  if (type == at::kHalf) return {optim::Precision::fp32(), "the model's files, in float16"};
  if (type == at::kBFloat16 && config.is_given("bf16")) return {optim::Precision::fp32(), "bf16: false"};
  return {throughout(type), "the model's files"};
}

ChosenPrecision precision_of(const config::RunConfig& config, const ModelSource& source, c10::Device device, bool all_bf16) {
  ChosenPrecision chosen = source.trains() ? ChosenPrecision{training_precision(config), fp32_notice(config, source.files())}
                                           : inference_precision(config, source.files());
  return supported(std::move(chosen), config, source.use(), device, all_bf16);
}

}  // namespace qft::engine
