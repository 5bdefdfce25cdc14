#include "qft/model/adapter_config.h"

#include "qft/core/error.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/model/pissa.h"
#include "qft/model/spec.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRank = 65536;

/// Keys of PEFT's LoraConfig that change the computation and are not implemented: all must be absent, null, false or empty.
constexpr const char* kMustBeEmpty[] = {"layer_replication",       "layers_to_transform", "lora_bias",
                                        "fan_in_fan_out",          "use_qalora",          "exclude_modules",
                                        "trainable_token_indices", "ensure_weight_tying"};

/// Values of init_lora_weights with which PEFT leaves the base weights alone. With others (pissa, olora, corda, loftq) it takes a
/// part out of them each time that it loads the adapter.
constexpr const char* kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

bool is_empty(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

/// "pissa", or "pissa_niter_16".
std::string start_by(const LoraConfig::Pissa& pissa) {
  return pissa.iterations < 0 ? "pissa" : fmt::format("pissa_niter_{}", pissa.iterations);
}

bool began_by_pissa(const json& start) {
  return start.is_string() && start.get<std::string>().starts_with("pissa");
}

/// `more`: names of modules, each with a comma after it.
void set_targets(LoraConfig& lora, const json& targets, const std::string& more, const std::string& where) {
  std::string list = more;
  if (targets.is_string() && targets != "all-linear") {
    require(more.empty(), "{}: target_modules is the expression '{}' beside routers in target_parameters: list the modules",
            where, targets.get<std::string>());
    lora.target_pattern = targets.get<std::string>();
    return;
  }
  if (targets.is_string()) {
    list += "all";
  } else {
    require(targets.is_array(), "{}: target_modules is {}, expected a list", where, targets.dump());
    for (const auto& t : targets) list += t.get<std::string>() + ",";
  }
  lora.set_targets(list);
}

/// PEFT's names of wrapped parameters: stacks of experts by their own, routers as the modules that they are.
void set_target_parameters(LoraConfig& lora, const json& names, std::string& modules, const std::string& where) {
  if (is_empty(names)) return;
  require(names.is_array(), "{}: target_parameters is {}, expected a list", where, names.dump());
  for (const json& name : names) {
    const std::string path = name.get<std::string>();
    constexpr std::string_view kWeight = ".weight";
    if (path.ends_with("gate_up_proj") || path.ends_with("down_proj")) {
      lora.target_parameters.push_back(path);
    } else {
      require(path.ends_with(kWeight),
              "{}: target_parameters has '{}', which is not implemented (implemented: gate_up_proj, "
              "down_proj and routers' gate.weight)",
              where, path);
      const std::string module = path.substr(0, path.size() - kWeight.size());
      modules += module.substr(module.rfind('.') + 1) + ",";
    }
  }
}

/// Whether an adapter has factors for the linears of single experts: newer PEFT wraps these as fused parameters or not at all.
bool has_expert_modules(const std::filesystem::path& dir) {
  const std::filesystem::path path = io::adapter_weights_of(dir);
  if (!std::filesystem::exists(path)) return true;  // whoever reads the weights says so
  const auto file = io::open_tensor_file(path);
  return std::ranges::any_of(file->entries(),
                             [](const io::TensorEntry& entry) { return entry.name.find(".experts.0.") != std::string::npos; });
}

/// PEFT's modules of a classifier: its head by the names that it has in one model or another. ms-swift adds its reward models'.
constexpr std::string_view kHeadModules[] = {"score", "classifier", "v_head"};

/// Of a classifier's adapter: its labels, as its head has them, which is no module beside it then.
void set_labels(LoraConfig& lora, const std::filesystem::path& dir, const std::string& where) {
  std::erase_if(lora.modules_to_save,
                [](const std::string& module) { return std::ranges::find(kHeadModules, module) != std::end(kHeadModules); });
  const std::filesystem::path path = io::adapter_weights_of(dir);
  if (!std::filesystem::exists(path)) return;  // whoever reads the weights says so
  const auto file = io::open_tensor_file(path);
  const std::string name = std::string(kAdapterPrefix) + kScore;
  const io::TensorEntry* head = file->find(name);
  require(head != nullptr && head->shape.size() == 2 && head->shape.front() >= 1,
          "{}: task_type is SEQ_CLS, but '{}' has no head of a classifier, a matrix '{}'", where, path.string(), name);
  lora.labels = head->shape.front();
}

template <class Number>
std::map<std::string, Number> read_pattern(const json& config, const char* key) {
  const json pattern = config.value(key, json());
  return is_empty(pattern) ? std::map<std::string, Number>{} : pattern.get<std::map<std::string, Number>>();
}

// Where the adapter's configuration is.
std::filesystem::path config_of(const std::filesystem::path& dir) {
  std::error_code code;
  if (!std::filesystem::exists(dir, code)) fail_config("adapter: there is no folder '{}'", dir.string());
  const auto path = member_of(dir, kAdapterConfigFile);
  if (!std::filesystem::exists(path, code))
    fail_config("'{}' has no {}: it is no adapter{}", dir.string(), kAdapterConfigFile,
                std::filesystem::exists(dir / io::kModelConfigFile, code) ? ", but a whole model" : "");
  return path;
}

}  // namespace

bool is_unconverted(const std::filesystem::path& dir) {
  if (!std::filesystem::exists(dir / kPissaInitFile)) return false;
  const json config = io::read_json(config_of(dir));
  return config.is_object() && began_by_pissa(config.value("init_lora_weights", json()));
}

LoraConfig read_adapter_config(const std::filesystem::path& dir) {
  const auto path = config_of(dir);
  const std::string where = path.string();
  const json config = io::read_json(path);
  require(config.is_object(), "{}: expected a JSON object", where);
  LoraConfig lora;
  try {
    const std::string type = config.value("peft_type", "LORA");
    require(type == "LORA", "{}: peft_type {} is not implemented (implemented: LORA)", where, type);
    const json start = config.value("init_lora_weights", json());
    const bool unconverted = is_unconverted(dir);
    require(
        unconverted || !start.is_string() || std::ranges::find(kPlainStarts, start.get<std::string>()) != std::end(kPlainStarts),
        "{}: init_lora_weights is {}: the adapter goes with other base weights than the model's; let PEFT convert it to a plain "
        "one (save_pretrained with path_initial_model_for_weight_conversion; LLaMA-Factory: pissa_convert), or, of a run of qft, "
        "bring "
        "{} too",
        where, start.dump(), kPissaInitFile);
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
    lora.dora = config.value("use_dora", false);
    json modules = config.contains("target_modules") ? config["target_modules"] : json();
    std::string routers;
    set_target_parameters(lora, config.value("target_parameters", json()), routers, where);
    if (!is_empty(modules) || !routers.empty() || lora.target_parameters.empty()) set_targets(lora, modules, routers, where);
    lora.expert_modules = has_expert_modules(dir);
    if (const json saved = config.value("modules_to_save", json()); !is_empty(saved))
      lora.modules_to_save = saved.get<std::vector<std::string>>();
    if (config.value("task_type", json()) == "SEQ_CLS") set_labels(lora, dir, where);
    lora.ranks = read_pattern<std::int64_t>(config, "rank_pattern");
    lora.alphas = read_pattern<double>(config, "alpha_pattern");
    for (const auto& [name, own] : lora.ranks)
      require(own >= 1 && own <= kMaxRank, "{}: rank_pattern gives '{}' rank {}, expected an integer from 1 to {}", where, name,
              own, kMaxRank);
    if (unconverted) lora = lora.plain();
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
  const auto number = [](double alpha) {
    return alpha == std::floor(alpha) ? json(static_cast<std::int64_t>(alpha)) : json(alpha);
  };
  std::vector<std::string> modules = lora.modules_to_save;
  if (lora.labels > 0) modules.emplace_back(kHeadModules[0]);
  json alphas = json::object();
  for (const auto& [key, alpha] : lora.alphas) alphas[key] = number(alpha);
  const json config = {{"alpha_pattern", alphas},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", base_model_name_or_path},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"inference_mode", true},
                       {"init_lora_weights", lora.pissa ? json(start_by(*lora.pissa)) : json(true)},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"lora_alpha", number(lora.alpha)},
                       {"lora_dropout", lora.dropout},
                       {"modules_to_save", modules.empty() ? json() : json(modules)},
                       {"peft_type", "LORA"},
                       {"r", lora.rank},
                       {"rank_pattern", json(lora.ranks)},
                       {"revision", nullptr},
                       {"target_modules", lora.target_pattern.empty() ? json(lora.targets) : json(lora.target_pattern)},
                       {"target_parameters", lora.target_parameters.empty() ? json() : json(lora.target_parameters)},
                       {"task_type", lora.labels > 0 ? "SEQ_CLS" : "CAUSAL_LM"},
                       {"use_dora", lora.dora},
                       {"use_rslora", lora.rslora}};
  return config.dump(2) + "\n";
}

}  // namespace qft::model
