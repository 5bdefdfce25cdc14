// What a run file asks of LoRA's targets is there, all of it.
#include "qft/core/error.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "lora_targets.h"
#include "sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// The whole names of all linears of the layers; of experts those of all.
std::vector<std::string> linear_names(const ModelSpec& spec) {
  std::vector<std::string> all;
  for (int l = 0; l < spec.config.num_layers; ++l)
    for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(l)])
      for (const ParamGroup& group : sublayer.params)
        for (std::size_t i = 0; i < group.linears.size(); ++i)
          std::ranges::copy(module_names(layer_prefix(spec.config, l), group, i), std::back_inserter(all));
  return all;
}

/// The stacks of experts that are wrapped as parameters, as PEFT names them.
std::vector<std::string> wrapped_parameters(const ModelSpec& spec) {
  std::vector<std::string> all;
  for (int l = 0; l < spec.config.num_layers; ++l)
    for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(l)])
      for (const ParamGroup& group : sublayer.params)
        if (group.is_stack() && spec.lora.targets_parameter(group.stack))
          all.push_back(layer_prefix(spec.config, l) + path_of(group.stack));
  return all;
}

/// Modules that are no linear of a layer: what holds others, norms, activations, embedding and head.
std::set<std::string> other_modules(const ModelSpec& spec, const std::vector<std::string>& linears) {
  std::set<std::string> others;
  constexpr std::string_view kWeight = ".weight";
  const auto add_parents = [&](std::string name) {
    for (auto dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) others.insert(name = name.substr(0, dot));
  };
  for (const UnitSpec& unit : spec.units)
    for (const ParamSpec& p : unit.params) {
      if (p.role != Role::base || !p.name.ends_with(kWeight)) continue;
      others.insert(p.name.substr(0, p.name.size() - kWeight.size()));
      add_parents(p.name.substr(0, p.name.size() - kWeight.size()));
    }
  for (const std::string& name : linears) add_parents(name);
  for (int l = 0; l < spec.config.num_layers; ++l) others.insert(layer_prefix(spec.config, l) + "mlp.act_fn");
  others.insert("lm_head");  // also where its weight is the embedding's
  for (const std::string& name : linears) others.erase(name);
  return others;
}

std::string examples(const std::vector<std::string>& names) {
  return fmt::format("'{}'{}", names.front(), names.size() > 1 ? fmt::format(" to '{}'", names.back()) : "");
}

void require_pattern(const ModelSpec& spec, const LoraTargets& targets, const std::vector<std::string>& linears) {
  const std::string& pattern = spec.lora.target_pattern;
  if (std::ranges::none_of(linears, [&](const std::string& name) { return targets.wraps(name); }))
    fail_config(
        "lora_target '{}' matches no linear module of this {}: as in PEFT the expression is for whole names, which are {}; "
        "several expressions go into one as (a|b)",
        pattern, spec.config.model_type, examples(linears));
  for (const std::string& name : other_modules(spec, linears))
    if (targets.wraps(name))
      fail_config(
          "lora_target '{}' matches '{}' too, which is no linear module of a layer: LoRA wraps those alone (PEFT refuses it, or "
          "wraps it); end the expression with their names, as in .*\\.(q_proj|v_proj)",
          pattern, name);
}

}  // namespace

void ModelSpec::require_lora_targets() const {
  const LoraTargets matcher(lora);
  const std::vector<std::string> linears = linear_names(*this);
  if (!lora.target_pattern.empty()) require_pattern(*this, matcher, linears);
  for (const std::string& target : lora.targets) {
    LoraConfig one;
    one.targets = {target};
    if (std::ranges::none_of(linears, [&](const std::string& name) { return one.targets_module(name); }))
      fail_config("lora_target '{}' is no linear module of this {}: names are such as {}", target, config.model_type,
                  examples(linears));
  }
  std::vector<std::string> wrapped = wrapped_parameters(*this);
  std::ranges::copy_if(linears, std::back_inserter(wrapped), [&](const std::string& name) { return matcher.wraps(name); });
  matcher.require_all_met(wrapped);
}

}  // namespace qft::model
