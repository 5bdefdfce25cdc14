#include "lora_targets.h"

#include "qft/core/error.h"

#include <algorithm>

#include "../sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

bool same(const LoraRows& a, const LoraRows& b) {
  return a.rank == b.rank && a.scaling == b.scaling;
}

}  // namespace

template <class Number>
LoraTargets::Keys::Keys(const char* name, Number fallback, const std::map<std::string, Number>& numbers)
    : what(name), default_value(static_cast<double>(fallback)) {
  for (const auto& [key, number] : numbers)
    keys.push_back({key, NamePattern(what, "(.*\\.)?(" + key + ")"), static_cast<double>(number)});
}

double LoraTargets::Keys::number_of(const std::string& module) const {
  const Key* first = nullptr;
  for (const Key& key : keys) {
    if (!key.pattern.matches(module)) continue;
    if (first != nullptr && first->number != key.number)
      fail_config("{}: '{}' gives {} and '{}' gives {}, but both match '{}': let only one expression match it", what, first->text,
                  first->number, key.text, key.number, module);
    first = &key;
  }
  return first == nullptr ? default_value : first->number;
}

LoraTargets::LoraTargets(const LoraConfig& lora)
    : TargetMatcher(lora),
      lora_(lora),
      ranks_("rank_pattern", lora.rank, lora.ranks),
      alphas_("alpha_pattern", lora.alpha, lora.alphas) {}

void LoraTargets::require_all_met(const std::vector<std::string>& modules) const {
  for (const Keys* pattern : {&ranks_, &alphas_})
    for (const Key& key : pattern->keys)
      if (std::ranges::none_of(modules, [&](const std::string& name) { return key.pattern.matches(name); }))
        fail_config(
            "{}: '{}' matches no module that lora_target wraps: as in PEFT, it must match the end of a name, starting after a "
            "dot, such as '{}'",
            pattern->what, key.text, modules.empty() ? "q_proj" : modules.front());
}

LoraRows LoraTargets::numbers(const std::string& module, LoraRows rows) const {
  const std::string name = lora_.name_in_files(module);
  rows.rank = static_cast<std::int64_t>(ranks_.number_of(name));
  rows.scaling = lora_.scaling(rows.rank, alphas_.number_of(name));
  rows.dora = lora_.dora;
  return rows;
}

std::vector<LoraRows> LoraTargets::rows_of(const std::string& prefix, const ParamGroup& group) const {
  if (group.is_stack() && lora_.targets_parameter(group.stack))
    return {numbers(prefix + path_of(group.stack), {0, 0, group.out()})};
  if (group.is_stack() && !lora_.expert_modules) return {};
  std::vector<LoraRows> rows;
  std::int64_t row0 = 0;
  for (std::size_t i = 0; i < group.linears.size(); ++i) {
    const std::vector<std::string> names = module_names(prefix, group, i);
    const bool wrapped = wraps(names.front());
    LoraRows part{i, row0, group.linears[i].out};
    if (wrapped) part = numbers(names.front(), part);
    for (const std::string& other : names)
      if (wraps(other) != wrapped || (wrapped && !same(numbers(other, part), part)))
        fail_config(
            "lora_target or a pattern treats '{}' and '{}' differently: all experts of a layer need the same LoRA; match all",
            names.front(), other);
    if (wrapped) rows.push_back(part);
    row0 += group.linears[i].out;
  }
  for (const LoraRows& part : rows)
    if (group.is_stack() && part.rank != rows.front().rank)
      fail_config("rank_pattern gives {} and {} of '{}{}' ranks {} and {}: expert linears with the same input need the same rank",
                  group.linears[rows.front().linear].name, group.linears[part.linear].name, prefix, group.stack.path,
                  rows.front().rank, part.rank);
  return rows;
}

void LoraTargets::set_rows(const std::string& prefix, Layer& layer) const {
  for (SubLayerSpec& sublayer : layer)
    for (ParamGroup& group : sublayer.params) {
      if (group.linears.empty()) continue;
      group.lora = rows_of(prefix, group);
      if (group.is_stack() && !group.lora.empty() && lora_.dora)
        fail_config(
            "use_dora is not available for the linears of experts ('{}{}'; nor in PEFT): name other modules in lora_target, such "
            "as q_proj, k_proj, v_proj, o_proj, or train plain LoRA",
            prefix, group.stack.path);
    }
}

}  // namespace qft::model
