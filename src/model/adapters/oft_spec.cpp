// OFT: the linears it wraps, and its parameters.
#include "qft/core/error.h"

#include <utility>

#include "../place.h"
#include "../sublayers/descriptions.h"
#include "kinds.h"
#include "target_matcher.h"
#include <fmt/format.h>

namespace qft::model {
namespace {

/// Returns the divisor of `inputs` nearest to `asked`, the lower one on a tie.
std::int64_t nearest_divisor(std::int64_t inputs, std::int64_t asked) {
  if (asked >= inputs) return inputs;
  for (std::int64_t away = 0;; ++away) {
    if (asked > away && inputs % (asked - away) == 0) return asked - away;
    if (inputs % (asked + away) == 0) return asked + away;
  }
}

/// Returns the wrapped linears of a group; their module names begin with `prefix`.
std::vector<OftRows> rows_of(const OftConfig& oft, const TargetMatcher& targets, const std::string& prefix,
                             const ParamGroup& group) {
  if (group.is_stack() && !oft.expert_modules) return {};
  std::vector<OftRows> all;
  std::int64_t row0 = 0;
  for (std::size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSpec& linear = group.linears[i];
    const std::string name = module_names(prefix, group, i).front();
    if (targets.wraps(name)) {
      if (group.is_stack())
        fail_config(
            "finetuning_type oft is not available for the linears of experts ('{}'): name other modules in oft_target, such as "
            "q_proj, k_proj, v_proj, o_proj, or train LoRA",
            name);
      const std::int64_t inputs = linear.columns.whole, block = oft.block_of(inputs);
      if (block < 2)
        fail_config("'{}' has {} inputs, which {} {} divides into blocks of {}: nothing to rotate in them; choose another value",
                    name, inputs, oft.rank > 0 ? "oft_rank" : "oft_block_size", oft.rank > 0 ? oft.rank : oft.block_size, block);
      all.push_back({i, row0, linear.out, oft.shared ? 1 : linear.in / block, block, oft.cayley()});
    }
    row0 += linear.out;
  }
  return all;
}

void wrap_by_oft(const AdapterConfig& config, const ModelConfig& model, std::vector<Layer>& layers) {
  const TargetMatcher targets(config.oft);
  for (std::size_t l = 0; l < layers.size(); ++l)
    for (SubLayerSpec& sublayer : layers[l])
      for (ParamGroup& group : sublayer.params)
        group.oft = rows_of(config.oft, targets, layer_prefix(model, static_cast<int>(l)), group);
}

/// All inputs of a block are rotated together.
std::int64_t block_of_inputs(const AdapterConfig& config, const std::string& module, std::int64_t inputs) {
  return TargetMatcher(config.oft).wraps(module) ? config.oft.block_of(inputs) : 1;
}

std::vector<AdapterParam> oft_params(const ModelSpec& spec, int /*layer*/, const std::string& prefix, const ParamGroup& group) {
  std::vector<AdapterParam> params;
  for (const OftRows& rows : group.oft) {
    const LinearSpec& linear = group.linears[rows.linear];
    ParamSpec p;
    p.role = Role::rotation;
    p.path = linear.path + kOftR;
    p.name = kAdapterPrefix + prefix + p.path;
    p.trainable = true;
    p.weight_decay = true;
    // One rotation for all blocks has a gradient from each of them.
    const Cut blocks = spec.adapter.oft.shared ? Cut::none(1) : linear.columns.in_blocks(rows.block);
    set_boxes(p, {blocks.whole, rows.block * (rows.block - 1) / 2}, 0, blocks, spec.share);
    p.derived_numel = rows.blocks * rows.block * rows.block;
    params.push_back({std::move(p), params.empty()});
  }
  return params;
}

}  // namespace

std::int64_t OftConfig::block_of(std::int64_t inputs) const {
  return rank > 0 ? inputs / nearest_divisor(inputs, rank) : nearest_divisor(inputs, block_size);
}

std::string OftConfig::describe() const {
  return fmt::format("OFT in {}{} {} on {}", shared ? "shared " : "",
                     rank > 0 ? fmt::format("{} blocks", rank) : fmt::format("blocks of {}", block_size),
                     neumann ? fmt::format("by {} terms of the series", terms) : "by Cayley's transform", targets_text());
}

const AdapterKind kOft{"OFT",           "OFT",      [](const AdapterConfig& config) { return config.oft.enabled(); }, wrap_by_oft,
                       block_of_inputs, oft_params, [](const ModelSpec&, const std::vector<std::string>&) {},         read_oft,
                       write_oft};

}  // namespace qft::model
