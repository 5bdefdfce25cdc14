// LoRA's part of adapter_config.json.
#include "qft/core/error.h"
#include "qft/model/adapter_config.h"
#include "qft/model/pissa.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "json_keys.h"
#include "kinds.h"
#include <fmt/format.h>

namespace qft::model {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxRank = 65536;

/// Values of init_lora_weights for which PEFT keeps the base weights. With other values (pissa, olora, corda, loftq) PEFT
/// subtracts a part from the base weights each time it loads the adapter.
constexpr const char* kPlainStarts[] = {"gaussian", "eva", "orthogonal"};

/// Returns "pissa" or "pissa_niter_16".
std::string start_by(const LoraConfig::Pissa& pissa) {
  return pissa.iterations < 0 ? "pissa" : fmt::format("pissa_niter_{}", pissa.iterations);
}

bool began_by_pissa(const json& start) {
  return start.is_string() && start.get<std::string>().starts_with("pissa");
}

/// Sorts PEFT's names of wrapped parameters: expert stacks into target_parameters, routers into `modules`.
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

template <class Number>
std::map<std::string, Number> read_pattern(const json& config, const char* key) {
  const json pattern = config.value(key, json());
  return is_empty(pattern) ? std::map<std::string, Number>{} : pattern.get<std::map<std::string, Number>>();
}

}  // namespace

bool is_unconverted(const std::filesystem::path& dir) {
  if (!std::filesystem::exists(dir / kPissaInitFile)) return false;
  const json config = read_adapter_json(dir);
  return config.is_object() && began_by_pissa(config.value("init_lora_weights", json()));
}

AdapterConfig read_lora(const json& config, const std::filesystem::path& dir, const std::string& where) {
  LoraConfig lora;
  const json start = config.value("init_lora_weights", json());
  const bool unconverted = is_unconverted(dir);
  require(
      unconverted || !start.is_string() || is_empty(start) ||
          std::ranges::find(kPlainStarts, start.get<std::string>()) != std::end(kPlainStarts),
      "{}: init_lora_weights is {}: the adapter needs base weights other than the model's; let PEFT convert it to a plain "
      "adapter "
      "(save_pretrained with path_initial_model_for_weight_conversion; LLaMA-Factory: pissa_convert) or, if it comes from a qft "
      "run, also copy {}",
      where, start.dump(), kPissaInitFile);
  read_common(config, lora, where);
  const json& rank = config.at("r");
  require(rank.is_number_integer() && rank >= 1 && rank <= kMaxRank, "{}: r is {}, expected an integer from 1 to {}", where,
          rank.dump(), kMaxRank);
  lora.rank = rank.get<std::int64_t>();
  lora.alpha = config.at("lora_alpha").get<double>();
  lora.dropout = value_or(config, "lora_dropout", 0.0);
  lora.rslora = value_or(config, "use_rslora", false);
  lora.dora = value_or(config, "use_dora", false);
  json modules = config.contains("target_modules") ? config["target_modules"] : json();
  std::string routers;
  set_target_parameters(lora, config.value("target_parameters", json()), routers, where);
  if (!is_empty(modules) || !routers.empty() || lora.target_parameters.empty()) read_targets(lora, modules, routers, where);
  lora.expert_modules = has_expert_modules(dir);
  lora.ranks = read_pattern<std::int64_t>(config, "rank_pattern");
  lora.alphas = read_pattern<double>(config, "alpha_pattern");
  for (const auto& [name, own] : lora.ranks)
    require(own >= 1 && own <= kMaxRank, "{}: rank_pattern gives '{}' rank {}, expected an integer from 1 to {}", where, name,
            own, kMaxRank);
  if (unconverted) lora = lora.plain();
  return lora;
}

json write_lora(const AdapterConfig& config) {
  const LoraConfig& lora = config.lora;
  const auto number = [](double alpha) {
    return alpha == std::floor(alpha) ? json(static_cast<std::int64_t>(alpha)) : json(alpha);
  };
  json alphas = json::object();
  for (const auto& [key, alpha] : lora.alphas) alphas[key] = number(alpha);
  return {{"alpha_pattern", alphas},
          {"init_lora_weights", lora.pissa ? json(start_by(*lora.pissa)) : json(true)},
          {"lora_alpha", number(lora.alpha)},
          {"lora_dropout", lora.dropout},
          {"r", lora.rank},
          {"rank_pattern", json(lora.ranks)},
          {"target_parameters", lora.target_parameters.empty() ? json() : json(lora.target_parameters)},
          {"use_dora", lora.dora},
          {"use_rslora", lora.rslora}};
}

}  // namespace qft::model
