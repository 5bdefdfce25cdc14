#include "qft/core/error.h"
#include "qft/model/config.h"

#include <algorithm>
#include <cctype>

#include "../config_reader.h"

namespace qft::model {
namespace {

using nlohmann::json;
using ops::QuantFormat;

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Reads group_size; -1 means all columns of a row.
std::int64_t group_of(const ConfigReader& config) {
  const json* value = config.find("group_size");
  if (value != nullptr && *value == -1) return 0;
  const std::int64_t group = config.positive("group_size", 128);
  require(group % 8 == 0, "{}: group_size is {}, expected -1 or a multiple of 8", config.where(), group);
  return group;
}

StoredQuantization read_bitsandbytes(const ConfigReader& config) {
  StoredQuantization q{.method = StoredMethod::bitsandbytes, .kind = {.format = QuantFormat::int8}};
  if (config.boolean("load_in_8bit", false)) return q;
  const std::string type = config.text("bnb_4bit_quant_type", "fp4");
  require(type == "nf4" || type == "fp4", "{}: bnb_4bit_quant_type '{}' is not implemented (implemented: nf4, fp4)",
          config.where(), type);
  q.kind = {type == "nf4" ? QuantFormat::nf4 : QuantFormat::fp4, config.boolean("bnb_4bit_use_double_quant", false)};
  return q;
}

StoredQuantization read_gptq(const ConfigReader& config) {
  StoredQuantization q{.method = StoredMethod::gptq};
  const std::int64_t bits = config.integer("bits");
  require(bits == 4 || bits == 8, "{}: GPTQ with {} bits is not implemented (implemented: 4, 8)", config.where(), bits);
  q.kind = {.format = bits == 4 ? QuantFormat::groups4 : QuantFormat::groups8, .columns = group_of(config)};
  q.kind.ordered = config.boolean("desc_act", false) && q.kind.columns > 0;
  const std::string format = config.text("checkpoint_format", "gptq");
  require(format == "gptq" || format == "gptq_v2", "{}: checkpoint_format '{}' is not implemented (implemented: gptq, gptq_v2)",
          config.where(), format);
  q.zeros_minus_one = format == "gptq";
  return q;
}

StoredQuantization read_awq(const ConfigReader& config) {
  const std::int64_t bits = config.integer(config.find("w_bit") != nullptr ? "w_bit" : "bits", 4);
  require(bits == 4, "{}: AWQ with {} bits is not implemented (implemented: 4)", config.where(), bits);
  const std::string version = lower(config.text(config.find("format") != nullptr ? "format" : "version", "gemm"));
  require(version == "gemm", "{}: AWQ's version '{}' is not implemented (implemented: gemm)", config.where(), version);
  require(config.boolean("zero_point", true), "{}: AWQ without zero_point is not implemented", config.where());
  return {.method = StoredMethod::awq, .kind = {.format = QuantFormat::groups4, .columns = group_of(config)}};
}

StoredQuantization read_fp8(const ConfigReader& config) {
  StoredQuantization q{.method = StoredMethod::fp8, .kind = {.format = QuantFormat::fp8}};
  const json* tile = config.find("weight_block_size");
  if (tile == nullptr) return q;
  const auto is_size = [](const json& n) { return n.is_number_integer() && n > 0 && n <= kMaxSize; };
  require(tile->is_array() && tile->size() == 2 && is_size((*tile)[0]) && is_size((*tile)[1]),
          "{}: weight_block_size is {}, expected rows and columns, such as [128, 128]", config.where(), tile->dump());
  q.kind.tile_rows = (*tile)[0].get<std::int64_t>();
  q.kind.columns = (*tile)[1].get<std::int64_t>();
  return q;
}

/// Reads compressed-tensors' fp8: one config group for all linears.
StoredQuantization read_compressed(const ConfigReader& config) {
  const std::string format = config.text("format", "");
  require(format == "float-quantized",
          "{}: compressed-tensors' format '{}' is not implemented (implemented: float-quantized, which is fp8)", config.where(),
          format);
  const json* groups = config.find("config_groups");
  require(groups != nullptr && groups->is_object() && groups->size() == 1 && groups->front().is_object() &&
              groups->front().contains("weights") && groups->front()["weights"].is_object(),
          "{}: config_groups is {}, expected one group with weights", config.where(), groups ? groups->dump() : "missing");
  const ConfigReader weights(groups->front()["weights"], config.where() + ": config_groups: weights");
  require(weights.integer("num_bits") == 8 && weights.text("type", "") == "float" && weights.boolean("symmetric", true),
          "{}: expected num_bits 8, type float, symmetric true", weights.where());
  const std::string strategy = weights.text("strategy", "tensor");
  require(strategy == "tensor" || strategy == "channel", "{}: strategy '{}' is not implemented (implemented: tensor, channel)",
          weights.where(), strategy);
  return {.method = StoredMethod::fp8, .kind = {.format = QuantFormat::fp8}, .scale = ".weight_scale"};
}

struct Method {
  const char* name;
  StoredQuantization (*read)(const ConfigReader&);
};
constexpr Method kMethods[] = {{"bitsandbytes", read_bitsandbytes},
                               {"fp8", read_fp8},
                               {"compressed-tensors", read_compressed},
                               {"gptq", read_gptq},
                               {"awq", read_awq}};

}  // namespace

std::string describe(const StoredQuantization& stored) {
  static constexpr const char* kNames[] = {"bitsandbytes", "fp8", "GPTQ", "AWQ"};
  return fmt::format("{}: {}", kNames[static_cast<std::size_t>(stored.method)], ops::describe(stored.kind));
}

StoredQuantization read_quantization(const json& object, const std::string& where) {
  const std::string here = where + ": quantization_config";
  require(object.is_object(), "{} is {}, expected an object", here, object.dump());
  const ConfigReader config(object, here);
  // Early bitsandbytes files do not name the method.
  const bool unnamed = config.boolean("load_in_4bit", false) || config.boolean("load_in_8bit", false);
  const std::string name = lower(config.text("quant_method", unnamed ? "bitsandbytes" : ""));
  std::string known;
  for (const Method& method : kMethods) {
    if (name == method.name) return method.read(config);
    known += (known.empty() ? "" : ", ") + std::string(method.name);
  }
  fail("{}: quant_method '{}' is not implemented (implemented: {}); use the 16-bit model", here, name, known);
}

}  // namespace qft::model
