#include "qft/model/adapter_config.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRank = 65536;

/// Keys of PEFT's LoraConfig that change the computation and are not implemented: all must be absent, null, false or empty.
constexpr const char* kMustBeEmpty[] = {
    "use_dora",  "modules_to_save", "rank_pattern", "alpha_pattern",   "layer_replication", "layers_to_transform",
    "lora_bias", "fan_in_fan_out",  "use_qalora",   "exclude_modules", "target_parameters", "trainable_token_indices"};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

void set_targets(LoraConfig& lora, const json& targets, const std::string& where) {
  std::string list;
  if (targets.is_string()) {
    require(targets == "all-linear", "{}: target_modules '{}': regular expressions are not implemented; list the modules", where,
            targets.get<std::string>());
    list = "all";
  } else {
    require(targets.is_array(), "{}: target_modules is {}, expected a list", where, targets.dump());
    for (const auto& t : targets) list += t.get<std::string>() + ",";
  }
  lora.set_targets(list);
}

// Where the adapter's configuration is.
std::filesystem::path config_of(const std::filesystem::path& dir) {
  std::error_code code;
  if (!std::filesystem::exists(dir, code)) fail_config("adapter: there is no folder '{}'", dir.string());
  const auto path = member_of(dir, kAdapterConfigFile);
  if (!std::filesystem::exists(path, code))
    fail_config("'{}' has no {}: it is no adapter{}", dir.string(), kAdapterConfigFile,
                std::filesystem::exists(dir / "config.json", code) ? ", but a whole model" : "");
  return path;
}

}  // namespace

LoraConfig read_adapter_config(const std::filesystem::path& dir) {
  const auto path = config_of(dir);
  const std::string where = path.string();
  const json config = io::read_json(path);
  require(config.is_object(), "{}: expected a JSON object", where);
  LoraConfig lora;
  try {
    const std::string type = config.value("peft_type", "LORA");
    require(type == "LORA", "{}: peft_type {} is not implemented (implemented: LORA)", where, type);
    for (const char* key : kMustBeEmpty)
      require(!config.contains(key) || is_empty(config[key]), "{}: {} = {} is not implemented", where, key,
              config.contains(key) ? config[key].dump() : "");
    const std::string bias = config.value("bias", "none");
    require(bias == "none", "{}: bias '{}' is not implemented (implemented: none)", where, bias);
    const json& rank = config.at("r");
    require(rank.is_number_integer() && rank >= 1 && rank <= kMaxRank, "{}: r is {}, expected an integer from 1 to {}", where,
            rank.dump(), kMaxRank);
    lora.rank = rank.get<std::int64_t>();
    lora.alpha = config.at("lora_alpha").get<double>();
    lora.dropout = config.value("lora_dropout", 0.0);
    lora.rslora = config.value("use_rslora", false);
    set_targets(lora, config.at("target_modules"), where);
  } catch (const json::exception& e) {
    fail("{}: {}", where, e.what());
  }
  return lora;
}

std::string read_base_model_name(const std::filesystem::path& dir) {
  const json config = io::read_json(config_of(dir));
  const json name = config.is_object() ? config.value("base_model_name_or_path", json()) : json();
  return name.is_string() ? name.get<std::string>() : std::string();
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
                       {"target_modules", lora.targets},
                       {"task_type", "CAUSAL_LM"},
                       {"use_dora", false},
                       {"use_rslora", lora.rslora}};
  return config.dump(2) + "\n";
}

}  // namespace qft::model
