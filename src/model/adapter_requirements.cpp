// Checks that everything a run file requests as an adapter's targets exists.
#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "adapters/kinds.h"
#include "adapters/target_matcher.h"
#include "sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// Returns the full names of all linears in the layers, including each expert's.
std::vector<std::string> linear_names(const ModelSpec& spec) {
  std::vector<std::string> all;
  for (int l = 0; l < spec.config.num_layers; ++l)
    for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(l)])
      for (const ParamGroup& group : sublayer.params)
        for (std::size_t i = 0; i < group.linears.size(); ++i)
          std::ranges::copy(module_names(layer_prefix(spec.config, l), group, i), std::back_inserter(all));
  return all;
}

/// Returns the modules that are not linears of a layer: containers, norms, activations, embedding and head.
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
  others.insert("lm_head");  // even if its weight is the embedding's
  for (const std::string& name : linears) others.erase(name);
  return others;
}

std::string examples(const std::vector<std::string>& names) {
  return fmt::format("'{}'{}", names.front(), names.size() > 1 ? fmt::format(" to '{}'", names.back()) : "");
}

void require_pattern(const ModelSpec& spec, const TargetMatcher& targets, const std::vector<std::string>& linears) {
  const auto& [key, pattern] = std::pair(spec.adapter.targets().key, spec.adapter.targets().target_pattern);
  if (std::ranges::none_of(linears, [&](const std::string& name) { return targets.wraps(name); }))
    fail_config(
        "{} '{}' matches no linear module of this {}: as in PEFT, the expression must match whole names, from {}; "
        "join several expressions as (a|b)",
        key, pattern, spec.config.model_type, examples(linears));
  for (const std::string& name : other_modules(spec, linears))
    if (targets.wraps(name))
      fail_config(
          "{} '{}' also matches '{}', which is not a linear module of a layer: {} wraps only linear modules (PEFT rejects or "
          "wraps it); end the expression with their names, as in .*\\.(q_proj|v_proj)",
          key, pattern, name, kind_of(spec.adapter)->name);
}

/// Returns the listed targets that match no linear.
std::vector<std::string> unmet_targets(const AdapterTargets& targets, const std::vector<std::string>& linears) {
  std::vector<std::string> unmet = targets.absent;
  AdapterTargets one;
  one.text_prefix = targets.text_prefix;
  std::ranges::copy_if(targets.targets, std::back_inserter(unmet), [&](const std::string& target) {
    one.targets = {target};
    return std::ranges::none_of(linears, [&](const std::string& name) { return one.targets_module(one.name_in_files(name)); });
  });
  return unmet;
}

}  // namespace

void require_wrapped(const ModelSpec& spec) {
  const AdapterTargets& targets = spec.adapter.targets();
  if (targets.origin.empty()) return;
  const std::vector<std::string> linears = linear_names(spec);
  const std::vector<std::string> unmet = unmet_targets(targets, linears);
  const auto wraps = [](const UnitSpec& unit) {
    return std::ranges::any_of(unit.params, [](const ParamSpec& param) { return is_factor(param.role); });
  };
  if (std::ranges::none_of(spec.units, wraps))
    fail_config("'{}': target_modules '{}' matches no linear module of this {}; module names are, for example, {}",
                targets.origin, unmet.empty() ? targets.targets_text() : fmt::format("{}", fmt::join(unmet, ",")),
                spec.config.model_type, examples(linears));
  if (!unmet.empty() && !targets.all_linear)
    log::warn_once(fmt::format(
        "'{}': target_modules contains {}, which matches no linear module of this {}: nothing is wrapped for it, as in PEFT",
        targets.origin, fmt::join(unmet, ", "), spec.config.model_type));
}

void ModelSpec::require_adapter_targets() const {
  const AdapterTargets& asked = adapter.targets();
  const std::vector<std::string> linears = linear_names(*this);
  if (!asked.target_pattern.empty()) require_pattern(*this, TargetMatcher(asked), linears);
  for (const std::string& target : asked.targets) {
    AdapterTargets one;
    one.targets = {target};
    if (std::ranges::none_of(linears, [&](const std::string& name) { return one.targets_module(name); }))
      fail_config("{} '{}' is not a linear module of this {}; module names are, for example, {}", asked.key, target,
                  config.model_type, examples(linears));
  }
  kind_of(adapter)->require_all_met(*this, linears);
}

}  // namespace qft::model
