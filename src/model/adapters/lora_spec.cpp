// LoRA and DoRA: the linears they wrap, and their parameters.
#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "../sublayers/descriptions.h"
#include "lora.h"
#include "lora_targets.h"
#include <fmt/format.h>

namespace qft::model {
namespace {

/// The factor on the split side of its linear is split with it. Every rank holds the other factor whole, with a partial gradient:
/// A gets the term of this rank's outputs; B and magnitudes (before the ranks' outputs are summed) get the term of this rank's
/// inputs.
GradPlacement lora_tensor_placement(Role role, Split split) {
  return (role != Role::lora_a) == (split == Split::rows) ? GradPlacement::sharded : GradPlacement::partial;
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
    p.shape = a ? Shape{experts, ranks, group.in()} : Shape{experts, rows, rank};
    p.trainable = true;
    p.weight_decay = true;
    p.gradient = gradient_axes(lora_tensor_placement(role, group.linears.front().split));
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

/// Returns path and shape of an adapter's tensor for a linear.
std::pair<std::string, Shape> adapter_tensor(Role role, const LinearSpec& linear, const LoraRows& rows) {
  if (role == Role::lora_a) return {linear.path + kLoraA, {rows.rank, linear.in}};
  if (role == Role::lora_b) return {linear.path + kLoraB, {linear.out, rows.rank}};
  return {linear.path + kMagnitude, {linear.out}};
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
      std::tie(p.path, p.shape) = adapter_tensor(role, linear, rows);
      p.name = kAdapterPrefix + prefix + p.path;
      p.trainable = true;
      p.weight_decay = true;
      p.gradient = gradient_axes(lora_tensor_placement(role, linear.split));
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

const AdapterKind kLora{"LoRA",       "LORA",      [](const AdapterConfig& config) { return config.lora.enabled(); },
                        wrap_by_lora, lora_params, require_patterns_met,
                        read_lora,    write_lora};

}  // namespace qft::model
