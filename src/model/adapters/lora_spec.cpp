// LoRA and DoRA: the linears they wrap, and their parameters.
#include "qft/core/error.h"
#include "qft/model/adapter.h"
#include "qft/model/spec.h"
#include "qft/model/sublayer_spec.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../place.h"
#include "../sublayers/descriptions.h"
#include "kinds.h"
#include "target_matcher.h"
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace qft::model {
namespace {

class LoraTargets : public TargetMatcher {
 public:
  /// `lora` must outlive the object. Throws ConfigError if an expression is invalid.
  explicit LoraTargets(const LoraConfig& lora);

  /// Fills ParamGroup::lora of a layer; its module names begin with `prefix`. Throws ConfigError for anything not implemented:
  /// different settings for the experts of a layer, and DoRA for experts.
  void set_rows(const std::string& prefix, Layer& layer) const;

  /// Throws ConfigError if an expression in rank_pattern or alpha_pattern matches none of `modules`.
  void require_all_met(const std::vector<std::string>& modules) const;

 private:
  /// An expression in rank_pattern or alpha_pattern, and its value.
  struct Key {
    std::string text;
    NamePattern pattern;
    double number;
  };
  /// rank_pattern or alpha_pattern, and the value if no expression matches.
  struct Keys {
    template <class Number>
    Keys(const char* what, Number default_value, const std::map<std::string, Number>& numbers);
    /// Throws ConfigError if two matching expressions give different numbers: PEFT takes the first in the file.
    double number_of(const std::string& module) const;

    const char* what;
    double default_value;
    std::vector<Key> keys;
  };
  /// Sets rank, scaling and the remaining fields of a module's rows.
  LoraRows numbers(const std::string& module, LoraRows rows) const;
  std::vector<LoraRows> rows_of(const std::string& prefix, const ParamGroup& group) const;

  const LoraConfig& lora_;
  Keys ranks_, alphas_;
};

bool same(const LoraRows& a, const LoraRows& b) {
  return a.rank == b.rank && a.scaling == b.scaling;
}

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

/// Returns PEFT's name for a factor of a fused tensor. PEFT wraps the experts once per adapted tensor, the last one outermost.
std::string fused_factor(const LoraConfig& lora, const std::string& prefix, const ModelSpec& spec, int layer,
                         const ParamGroup& group, const char* suffix) {
  std::string wrappers;
  bool later = false;
  for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(layer)])
    for (const ParamGroup& other : sublayer.params) {
      if (later && other.is_stack() && lora.targets_parameter(other.stack)) wrappers += ".base_layer";
      later = later || (&other == &group);
    }
  return fmt::format("{}{}mlp.experts{}{}", kAdapterPrefix, prefix, wrappers, suffix);
}

/// Returns the factors of all experts: A [experts, ranks of the linears, in], B [experts, rows of the linears, rank].
std::vector<AdapterParam> stack_params(const ModelSpec& spec, int layer, const std::string& prefix, const ParamGroup& group) {
  const LoraConfig& lora = spec.adapter.lora;
  const std::vector<LoraRows>& wrapped = group.lora;
  if (wrapped.empty()) return {};
  std::vector<std::size_t> linears;
  for (const LoraRows& part : wrapped) linears.push_back(part.linear);
  std::vector<AdapterParam> params;
  const bool fused = lora.targets_parameter(group.stack);
  std::int64_t rows = 0;
  for (const LoraRows& part : wrapped) rows += part.rows;
  const std::int64_t experts = group.stack.experts, rank = wrapped.front().rank, ranks = rank * std::ssize(wrapped);
  for (const Role role : {Role::lora_a, Role::lora_b}) {
    const bool a = role == Role::lora_a;
    ParamSpec p;
    p.role = role;
    p.path = path_of(group.stack) + (a ? kLoraA : kLoraB);
    p.name = kAdapterPrefix + prefix + p.path;
    set_whole(p, a ? Shape{experts, ranks, group.in()} : Shape{experts, rows, rank}, spec.share);
    p.trainable = true;
    p.weight_decay = true;
    if (!fused) {
      p.parts = expert_tensors(kAdapterPrefix + prefix, group, linears, a ? kLoraA : kLoraB, a ? rank : 0, a ? group.in() : rank);
    } else {
      p.experts_last = !a;
      p.parts = {{fused_factor(lora, prefix, spec, layer, group, a ? kLoraA : kLoraB),
                  a ? Shape{experts * ranks, group.in()} : Shape{rows, rank * experts}}};
    }
    params.push_back({std::move(p)});
  }
  return params;
}

/// Sets path and boxes of an adapter's tensor for a linear: B and magnitudes are cut with the outputs, A with the inputs.
void set_tensor(ParamSpec& p, const LinearSpec& linear, const LoraRows& rows, Share share) {
  if (p.role == Role::lora_a) {
    p.path = linear.path + kLoraA;
    set_boxes(p, {rows.rank, linear.columns.whole}, 1, linear.columns, share);
  } else if (p.role == Role::lora_b) {
    p.path = linear.path + kLoraB;
    set_boxes(p, {linear.rows.whole, rows.rank}, 0, linear.rows, share);
  } else {
    p.path = linear.path + kMagnitude;
    set_boxes(p, {linear.rows.whole}, 0, linear.rows, share);
  }
}

/// A group's tensors are laid out A A A B B B, then the magnitudes.
std::vector<AdapterParam> lora_params(const ModelSpec& spec, int layer, const std::string& prefix, const ParamGroup& group) {
  if (group.is_stack()) return stack_params(spec, layer, prefix, group);
  std::vector<AdapterParam> params;
  for (const Role role : {Role::lora_a, Role::lora_b, Role::magnitude}) {
    bool first = true;
    for (const LoraRows& rows : group.lora) {
      if (role == Role::magnitude && !rows.dora) continue;
      const LinearSpec& linear = group.linears[rows.linear];
      ParamSpec p;
      p.role = role;
      set_tensor(p, linear, rows, spec.share);
      p.name = kAdapterPrefix + prefix + p.path;
      p.trainable = true;
      p.weight_decay = true;
      if (role == Role::magnitude) p.derived_numel = 2 * linear.out;
      params.push_back({std::move(p), std::exchange(first, false)});
    }
  }
  return params;
}

void wrap_by_lora(const AdapterConfig& config, const ModelConfig& model, std::vector<Layer>& layers) {
  const LoraTargets targets(config.lora);
  for (std::size_t i = 0; i < layers.size(); ++i) targets.set_rows(layer_prefix(model, static_cast<int>(i)), layers[i]);
}

/// Returns the expert stacks that are wrapped as parameters, by PEFT's names.
std::vector<std::string> wrapped_parameters(const ModelSpec& spec) {
  std::vector<std::string> all;
  for (int l = 0; l < spec.config.num_layers; ++l)
    for (const SubLayerSpec& sublayer : spec.layers[static_cast<std::size_t>(l)])
      for (const ParamGroup& group : sublayer.params)
        if (group.is_stack() && spec.adapter.lora.targets_parameter(group.stack))
          all.push_back(layer_prefix(spec.config, l) + path_of(group.stack));
  return all;
}

void require_patterns_met(const ModelSpec& spec, const std::vector<std::string>& linears) {
  const LoraTargets targets(spec.adapter.lora);
  std::vector<std::string> wrapped = wrapped_parameters(spec);
  std::ranges::copy_if(linears, std::back_inserter(wrapped), [&](const std::string& name) { return targets.wraps(name); });
  targets.require_all_met(wrapped);
}

}  // namespace

const AdapterKind kLora{"LoRA",
                        "LORA",
                        [](const AdapterConfig& config) { return config.lora.enabled(); },
                        wrap_by_lora,
                        [](const AdapterConfig&, const std::string&, std::int64_t) { return std::int64_t{1}; },
                        lora_params,
                        require_patterns_met,
                        read_lora,
                        write_lora};

double LoraConfig::scaling(std::int64_t rank, double alpha) const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

bool LoraConfig::targets_parameter(const ExpertStack& stack) const {
  // The parameter's path in a layer depends on the version of transformers.
  return std::ranges::any_of(
      target_parameters, [&](const std::string& path) { return path == stack.name || path.ends_with("experts." + stack.name); });
}

LoraConfig LoraConfig::plain() const {
  LoraConfig twice = *this;
  const double factor = rslora ? std::sqrt(2.0) : 2.0;
  twice.pissa.reset();
  twice.rank *= 2;
  twice.alpha *= factor;
  for (auto& [key, number] : twice.ranks) number *= 2;
  for (auto& [key, number] : twice.alphas) number *= factor;
  return twice;
}

}  // namespace qft::model
