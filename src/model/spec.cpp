#include "qft/model/spec.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "sublayers/descriptions.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

/// A base tensor that has no place in a buffer yet.
struct Tensor {
  std::string path;
  Shape shape;
  bool starts_group = true;         ///< on an aligned offset; else it continues the one before
  bool decays = false;              ///< as HF Trainer decides: not biases and norms
  Along tensor_axis = Along::copy;  ///< its gradient along comm::Axis::tensor
  Along pipeline_axis = Along::own;
};

/// Ranks with other samples, or with other tokens of a sample, have terms of the gradient.
GradientAxes gradient_axes(Along tensor_axis, Along pipeline_axis = Along::own) {
  GradientAxes axes{};
  const auto along = [&](comm::Axis axis) -> Along& { return axes[static_cast<std::size_t>(axis)]; };
  for (const comm::Axis axis : {comm::Axis::replicate, comm::Axis::shard, comm::Axis::context}) along(axis) = Along::sum;
  along(comm::Axis::pipeline) = pipeline_axis;
  along(comm::Axis::tensor) = tensor_axis;
  return axes;
}

std::int64_t align(std::int64_t n) {
  return (n + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

/// Gives `param` its place in the unit and appends it.
void place(UnitSpec& unit, ParamSpec param, bool starts_group) {
  std::int64_t& end = param.trainable ? unit.trainable_numel : unit.frozen_numel;
  if (starts_group) end = align(end);
  param.box = Box::whole(param.shape);
  param.numel = static_cast<std::int64_t>(param.box.elements());
  param.offset = end;
  end += param.numel;
  unit.params.push_back(std::move(param));
}

void place_base(UnitSpec& unit, const std::string& prefix, Finetuning finetuning, const Tensor& tensor) {
  ParamSpec p;
  p.path = tensor.path;
  p.name = prefix + tensor.path;
  p.shape = tensor.shape;
  p.trainable = finetuning == Finetuning::full;
  p.weight_decay = tensor.decays;
  p.gradient = gradient_axes(tensor.tensor_axis, tensor.pipeline_axis);
  place(unit, std::move(p), tensor.starts_group);
}

void place_group(UnitSpec& unit, const std::string& prefix, Finetuning finetuning, const ParamGroup& group) {
  if (group.linears.empty())
    return place_base(unit, prefix, finetuning,
                      {.path = group.vector, .shape = {group.size}, .tensor_axis = group.per_head ? Along::sum : Along::copy});
  bool first = true;
  for (const LinearSpec& linear : group.linears)
    place_base(unit, prefix, finetuning,
               {linear.path + ".weight", {linear.out, linear.in}, std::exchange(first, false), /*decays=*/true, Along::own});
  first = true;
  for (const LinearSpec& linear : group.linears)
    if (linear.bias)
      place_base(unit, prefix, finetuning,
                 {.path = linear.path + ".bias",
                  .shape = {linear.out},
                  .starts_group = std::exchange(first, false),
                  .tensor_axis = linear.split == Split::rows ? Along::own : Along::copy});
}

/// The factor on the split side of its linear is split with it. The other is whole on every rank, and has a term of the gradient:
/// A that of this rank's outputs, B (before the ranks' outputs are added up) that of this rank's inputs.
Along lora_along_tensor(Role role, Split split) {
  return (role == Role::lora_b) == (split == Split::rows) ? Along::own : Along::sum;
}

/// The factors of a group lie A A A B B B.
void place_lora(UnitSpec& unit, const LoraConfig& lora, const std::string& prefix, const ParamGroup& group) {
  for (const Role role : {Role::lora_a, Role::lora_b}) {
    bool first = true;
    for (const LinearSpec& linear : group.linears) {
      if (!lora.targets_module(linear.name)) continue;
      ParamSpec p;
      p.role = role;
      p.path = linear.path + (role == Role::lora_a ? kLoraA : kLoraB);
      p.name = "base_model.model." + prefix + p.path;
      p.shape = role == Role::lora_a ? Shape{lora.rank, linear.in} : Shape{linear.out, lora.rank};
      p.trainable = true;
      p.weight_decay = true;
      p.gradient = gradient_axes(lora_along_tensor(role, linear.split));
      place(unit, std::move(p), std::exchange(first, false));
    }
  }
}

UnitSpec unit_of(UnitSpec::Kind kind, int layer, std::string name) {
  UnitSpec unit;
  unit.kind = kind;
  unit.layer = layer;
  unit.name = std::move(name);
  return unit;
}

UnitSpec finished(UnitSpec unit) {
  unit.frozen_numel = align(unit.frozen_numel);
  unit.trainable_numel = align(unit.trainable_numel);
  return unit;
}

UnitSpec build_layer(const ModelSpec& spec, int index) {
  UnitSpec unit = unit_of(UnitSpec::Kind::layer, index, fmt::format("layer {}", index));
  const std::string prefix = fmt::format("model.layers.{}.", index);
  const Layer& layer = spec.layers[static_cast<std::size_t>(index)];
  for (const auto& sublayer : layer) {
    place_base(unit, prefix, spec.finetuning, {.path = sublayer.norm, .shape = {spec.config.hidden_size}});
    for (const ParamGroup& group : sublayer.params) place_group(unit, prefix, spec.finetuning, group);
  }
  if (spec.finetuning == Finetuning::lora)
    for (const auto& sublayer : layer)
      for (const ParamGroup& group : sublayer.params) place_lora(unit, spec.lora, prefix, group);
  return finished(std::move(unit));
}

UnitSpec build_embedding(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::embedding, -1, "embedding");
  // A tied table is used by the first stage of a pipeline and by the last.
  place_base(unit, "", spec.finetuning,
             {kEmbedTokens,
              {spec.config.vocab_size, spec.config.hidden_size},
              true,
              /*decays=*/true,
              Along::own,
              spec.config.tie_word_embeddings ? Along::sum : Along::own});
  return finished(std::move(unit));
}

UnitSpec build_head(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::head, -1, "head");
  place_base(unit, "", spec.finetuning, {.path = kFinalNorm, .shape = {spec.config.hidden_size}});
  if (!spec.config.tie_word_embeddings)
    place_base(unit, "", spec.finetuning,
               {kLmHead, {spec.config.vocab_size, spec.config.hidden_size}, true, /*decays=*/true, Along::own});
  return finished(std::move(unit));
}

}  // namespace

double LoraConfig::scaling() const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

bool LoraConfig::targets_module(std::string_view name) const {
  return std::ranges::find(targets, name) != targets.end();
}

void LoraConfig::set_targets(const std::string& list) {
  const auto& known = lora_modules();
  std::set<std::string> asked;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) {
    word.erase(0, word.find_first_not_of(" \t"));
    word.erase(word.find_last_not_of(" \t") + 1);
    if (word.empty()) continue;
    if (word == "all") {
      asked.insert(known.begin(), known.end());
      continue;
    }
    if (std::ranges::find(known, word) == known.end())
      fail_config("lora_target '{}' is no linear module of this model: use all, or of {}", word, fmt::join(known, ", "));
    asked.insert(word);
  }
  if (asked.empty()) fail_config("lora_target is empty: use all, or a list of modules");
  targets.clear();
  std::ranges::copy_if(known, std::back_inserter(targets), [&](const std::string& name) { return asked.contains(name); });
}

std::vector<int> ModelSpec::units_of_block(int block) const {
  if (block == head_unit() && config.tie_word_embeddings) return {block, 0};
  return {block};
}

std::int64_t ModelSpec::num_params(bool trainable_only) const {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.params)
      if (p.trainable || !trainable_only) n += p.numel;
  return n;
}

ModelSpec ModelSpec::build(const ModelConfig& config, Finetuning finetuning, const LoraConfig& lora) {
  QFT_ASSERT((finetuning == Finetuning::lora) == lora.enabled(), "LoRA rank {} does not fit the method", lora.rank);
  ModelSpec spec;
  spec.config = config;
  spec.lora = lora;
  spec.finetuning = finetuning;
  for (int i = 0; i < config.num_layers; ++i) spec.layers.push_back(describe_layer(config, i));
  spec.units.push_back(build_embedding(spec));
  for (int i = 0; i < config.num_layers; ++i) spec.units.push_back(build_layer(spec, i));
  spec.units.push_back(build_head(spec));
  return spec;
}

}  // namespace qft::model
