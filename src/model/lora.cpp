#include <algorithm>
#include <cmath>
#include <fstream>

#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "qft/core/error.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"
#include "qft/model/load.h"
#include "qft/model/ops/philox.h"

namespace qft::model {
namespace {

using nlohmann::json;

constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";

/// Keys of PEFT's LoraConfig that change the computation and are not implemented: all must be absent, null, false or
/// empty.
constexpr const char* kMustBeEmpty[] = {"use_dora",        "modules_to_save",     "rank_pattern", "alpha_pattern",
                                        "layer_replication", "layers_to_transform", "lora_bias",    "fan_in_fan_out",
                                        "use_qalora",      "exclude_modules",     "target_parameters", "trainable_token_indices"};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || ((value.is_array() || value.is_object()) && value.empty());
}

json read_json(const std::filesystem::path& path) {
  try {
    return json::parse(io::read_text_file(path));
  } catch (const json::exception& e) {
    fail("'{}' is not valid JSON: {}", path.string(), e.what());
  }
}

/// Elements [begin, end) of uniform values in [-bound, bound): 24 random bits each, from (seed, name, index) alone.
std::vector<float> uniform(std::uint64_t seed, const std::string& name, std::int64_t begin, std::int64_t end, double bound) {
  const auto site = static_cast<std::uint32_t>(std::stoul(hash_hex(name).substr(0, 8), nullptr, 16));
  const ops::PhiloxKey key = {static_cast<std::uint32_t>(seed) ^ site, static_cast<std::uint32_t>(seed >> 32) + site};
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  for (std::int64_t block = begin / 4; block * 4 < end; ++block) {
    const auto words = ops::philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), site, 0}, key);
    for (std::int64_t i = std::max(begin, block * 4); i < std::min(end, block * 4 + 4); ++i)
      values[static_cast<std::size_t>(i - begin)] =
          static_cast<float>(bound * (2.0 * static_cast<double>(words[static_cast<std::size_t>(i % 4)] >> 8) / (1 << 24) - 1.0));
  }
  return values;
}

void set_targets(LoraConfig& lora, const json& targets, const std::string& where) {
  std::string list;
  if (targets.is_string()) {
    require(targets == "all-linear", "{}: target_modules '{}': regular expressions are not implemented; list the modules",
            where, targets.get<std::string>());
    list = "all";
  } else {
    require(targets.is_array(), "{}: target_modules is {}, expected a list", where, targets.dump());
    for (const auto& t : targets) list += t.get<std::string>() + ",";
  }
  lora.set_targets(list);
}

}  // namespace

LoraConfig read_adapter_config(const std::filesystem::path& dir) {
  const auto path = dir / kConfigFile;
  const std::string where = path.string();
  const json config = read_json(path);
  LoraConfig lora;
  try {
    const std::string type = config.value("peft_type", "LORA");
    require(type == "LORA", "{}: peft_type {} is not implemented (implemented: LORA)", where, type);
    for (const char* key : kMustBeEmpty)
      require(!config.contains(key) || is_empty(config[key]), "{}: {} = {} is not implemented", where, key,
              config.contains(key) ? config[key].dump() : "");
    const std::string bias = config.value("bias", "none");
    require(bias == "none", "{}: bias '{}' is not implemented (implemented: none)", where, bias);
    lora.rank = config.at("r").get<std::int64_t>();
    lora.alpha = config.at("lora_alpha").get<double>();
    lora.dropout = config.value("lora_dropout", 0.0);
    lora.rslora = config.value("use_rslora", false);
    require(lora.rank > 0, "{}: r is {}, expected a positive rank", where, lora.rank);
    set_targets(lora, config.at("target_modules"), where);
  } catch (const json::exception& e) {
    fail("{}: {}", where, e.what());
  }
  return lora;
}

std::string adapter_config_json(const LoraConfig& lora, const std::string& base_model_name_or_path) {
  const double alpha = lora.alpha;
  const json config = {{"alpha_pattern", json::object()},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", base_model_name_or_path},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", alpha == std::floor(alpha) ? json(static_cast<std::int64_t>(alpha)) : json(alpha)},
                       {"lora_dropout", lora.dropout},
                       {"modules_to_save", nullptr},
                       {"peft_type", "LORA"},
                       {"r", lora.rank},
                       {"rank_pattern", json::object()},
                       {"revision", nullptr},
                       {"target_modules", lora.target_names()},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", lora.rslora}};
  return config.dump(2) + "\n";
}

void init_lora(const ModelSpec& spec, std::uint64_t seed, const ParamAccess& access) {
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role == Role::base) continue;
      const ParamSlice dst = access(u, param);
      if (dst.values.numel() == 0) continue;
      if (param.role == Role::lora_b) {
        dst.values.zero_();
        continue;
      }
      std::vector<float> values =
          uniform(seed, param.name, dst.begin, dst.end(), 1.0 / std::sqrt(static_cast<double>(param.shape[1])));
      dst.values.copy_(at::from_blob(values.data(), {dst.values.numel()}, at::kFloat));
    }
}

void load_adapter(const ModelSpec& spec, const std::filesystem::path& dir, const ParamAccess& access) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(dir / kWeightsFile);
  std::size_t used = 0;
  for (int u = 0; u < spec.num_units(); ++u)
    for (const auto& param : spec.units[static_cast<std::size_t>(u)].params) {
      if (param.role == Role::base) continue;
      read_into(file, file.at(param.name), param.shape, access(u, param));
      ++used;
    }
  require(used == file.entries().size(),
          "'{}' holds {} tensors, the adapter's configuration asks for {}: was it made for another model?",
          file.path().string(), file.entries().size(), used);
}

}  // namespace qft::model
