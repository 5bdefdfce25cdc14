#include "qft/model/spec.h"

#include "qft/core/error.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "adapters/kinds.h"
#include "sublayers/descriptions.h"

namespace qft::model {
namespace {

/// A base tensor without a place in a buffer yet.
struct Tensor {
  std::string path;
  Shape shape;
  bool starts_group = true;  ///< starts at an aligned offset; false: directly follows the previous tensor
  bool decays = false;       ///< like HF Trainer: false for biases and norms
  GradPlacement tensor_axis = GradPlacement::replicated;  ///< gradient along comm::Axis::tensor
  GradPlacement pipeline_axis = GradPlacement::sharded;
  std::vector<FileTensor> parts = {};
  Role role = Role::base;
};

std::int64_t align(std::int64_t n) {
  return (n + kFlatAlignment - 1) / kFlatAlignment * kFlatAlignment;
}

/// Sets the place of `param` in the unit and appends it.
void place(UnitSpec& unit, ParamSpec param, bool starts_group) {
  std::int64_t& end = param.is_quantized() ? unit.quantized_numel : param.trainable ? unit.trainable_numel : unit.frozen_numel;
  if (starts_group) end = align(end);
  if (param.boxes.empty()) param.boxes = {Box::whole(param.shape)};
  if (param.local_shape.empty()) param.local_shape = param.shape;
  param.numel = static_cast<std::int64_t>(elements(param.boxes));
  param.offset = end;
  end += param.numel;
  param.packed_offset = unit.packed_bytes;
  unit.packed_bytes += param.packed_bytes();
  param.derived_offset = std::exchange(unit.derived_numel, unit.derived_numel + param.derived_numel);
  unit.params.push_back(std::move(param));
}

bool trains(const ModelSpec& spec, int layer, const std::string& path, const std::string& name) {
  switch (spec.finetuning) {
    case Finetuning::full:
      return true;
    case Finetuning::adapter:
      return is_saved_whole(spec.adapter.targets().modules_to_save, name);
    case Finetuning::freeze:
      return spec.freeze.trains(layer, path, name);
  }
  return false;
}

/// Returns true if a linear with this storage format is kept quantised. If a full model is quantised, nothing trains.
bool is_packed(const ModelSpec& spec, const ParamSpec& param, const ops::Quantization& quantization) {
  if (quantization.format == ops::QuantFormat::none) return false;
  const bool beside_frozen = param.trainable && spec.finetuning != Finetuning::full;
  if (beside_frozen && spec.config.stored)
    fail_config(
        "'{}' would train in full, but the model's files hold it quantised ({}): remove its module from additional_target, or "
        "start from the 16-bit model",
        param.name, ops::describe(quantization));
  return !beside_frozen;
}

void place_base(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const Tensor& tensor,
                const ops::Quantization& quantization = {}, std::int64_t pieces = 1) {
  ParamSpec p;
  p.path = tensor.path;
  p.name = prefix + tensor.path;
  p.shape = tensor.shape;
  p.role = tensor.role;
  p.trainable = p.role == Role::value_head || trains(spec, unit.layer, p.path, p.name);
  p.weight_decay = tensor.decays;
  p.gradient = gradient_axes(tensor.tensor_axis, tensor.pipeline_axis);
  p.parts = tensor.parts;
  if (is_packed(spec, p, quantization)) {
    const std::int64_t columns = p.shape.back();
    const std::int64_t rows = static_cast<std::int64_t>(Box::whole(p.shape).elements()) / columns;
    p.packed_pieces = pieces;
    p.packed = ops::QuantizedLayout::of(quantization, rows / pieces, columns);
  }
  place(unit, std::move(p), tensor.starts_group);
}

/// Adds a tensor outside the layers.
void place_outer(UnitSpec& unit, const ModelSpec& spec, const Tensor& tensor) {
  constexpr std::string_view kDecoder = "model.";
  place_base(unit, "", spec, tensor);
  std::string& name = unit.params.back().name;
  if (name.starts_with(kDecoder)) name.replace(0, kDecoder.size(), spec.config.text_prefix);
}

/// Returns the common format of these weights, which are stored consecutively.
ops::Quantization common_format(const WeightStorage& weight_storage, const std::vector<std::string>& tensors) {
  const ops::Quantization kind = weight_storage.format_of(tensors.front());
  for (const std::string& tensor : tensors)
    if (const ops::Quantization other = weight_storage.format_of(tensor); other != kind)
      fail("'{}' is kept as {}, but '{}' as {}: quantise all experts of a layer in the same format", tensors.front(),
           ops::describe(kind), tensor, ops::describe(other));
  return kind;
}

/// Returns the formats of a projection group's linears: if any linear is quantised, all are decoded together.
std::vector<ops::Quantization> formats_of(const WeightStorage& weight_storage, const std::vector<std::string>& tensors) {
  std::vector<ops::Quantization> kinds;
  for (const std::string& tensor : tensors) kinds.push_back(weight_storage.format_of(tensor));
  const auto is_plain = [](const ops::Quantization& kind) { return kind.format == ops::QuantFormat::none; };
  if (std::ranges::all_of(kinds, is_plain)) return kinds;
  std::ranges::replace_if(kinds, is_plain, ops::Quantization{ops::QuantFormat::fp32});
  return kinds;
}

void place_stack(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const ParamGroup& group,
                 const WeightStorage& weight_storage) {
  Tensor tensor{
      path_of(group.stack), {group.stack.experts, group.out(), group.in()}, true, /*decays=*/true, GradPlacement::sharded};
  std::vector<std::size_t> linears(group.linears.size());
  std::iota(linears.begin(), linears.end(), std::size_t{0});
  if (!group.stack.fused) tensor.parts = expert_tensors(prefix, group, linears, ".weight", 0, group.in());
  std::vector<std::string> names;
  for (const FileTensor& part : tensor.parts) names.push_back(part.name);
  if (names.empty()) names.push_back(prefix + tensor.path);
  const std::int64_t pieces = weight_storage.by_file_tensor ? std::ssize(names) : 1;
  place_base(unit, prefix, spec, tensor, common_format(weight_storage, names), pieces);
}

void place_group(UnitSpec& unit, const std::string& prefix, const ModelSpec& spec, const ParamGroup& group,
                 const WeightStorage& weight_storage) {
  if (group.linears.empty())
    return place_base(unit, prefix, spec,
                      {.path = group.tensor,
                       .shape = group.shape,
                       .decays = group.decays,
                       .tensor_axis = group.of_heads   ? GradPlacement::sharded
                                      : group.per_head ? GradPlacement::partial
                                                       : GradPlacement::replicated});
  if (group.is_stack()) return place_stack(unit, prefix, spec, group, weight_storage);
  const bool router = std::ranges::any_of(group.linears, [](const LinearSpec& linear) { return is_router(linear.name); });
  std::vector<std::string> names;
  for (const LinearSpec& linear : group.linears) names.push_back(prefix + linear.path + ".weight");
  const std::vector<ops::Quantization> kinds =
      router ? std::vector<ops::Quantization>(names.size()) : formats_of(weight_storage, names);
  for (std::size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSpec& linear = group.linears[i];
    place_base(unit, prefix, spec,
               {linear.path + ".weight", {linear.out, linear.in}, i == 0, /*decays=*/true, GradPlacement::sharded}, kinds[i]);
  }
  bool first = true;
  for (const LinearSpec& linear : group.linears)
    if (linear.bias)
      place_base(unit, prefix, spec,
                 {.path = linear.path + ".bias",
                  .shape = {linear.out},
                  .starts_group = std::exchange(first, false),
                  .tensor_axis = linear.split == Split::rows ? GradPlacement::sharded : GradPlacement::replicated});
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
  unit.quantized_numel = align(unit.quantized_numel);
  return unit;
}

UnitSpec build_layer(const ModelSpec& spec, int index, const WeightStorage& weight_storage) {
  UnitSpec unit = unit_of(UnitSpec::Kind::layer, index, fmt::format("layer {}", index));
  const std::string prefix = layer_prefix(spec.config, index);
  const Layer& layer = spec.layers[static_cast<std::size_t>(index)];
  for (const auto& sublayer : layer) {
    place_base(unit, prefix, spec, {.path = sublayer.norm, .shape = {spec.config.hidden_size}});
    for (const ParamGroup& group : sublayer.params) place_group(unit, prefix, spec, group, weight_storage);
  }
  if (const AdapterKind* kind = kind_of(spec.adapter))
    for (const auto& sublayer : layer)
      for (const ParamGroup& group : sublayer.params)
        for (AdapterParam& added : kind->params(spec, index, prefix, group))
          place(unit, std::move(added.param), added.starts_group);
  return finished(std::move(unit));
}

UnitSpec build_embedding(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::embedding, -1, "embedding");
  // The first and the last pipeline stage use a tied table.
  place_outer(unit, spec,
              {kEmbedTokens,
               {spec.config.vocab_size, spec.config.hidden_size},
               true,
               /*decays=*/true,
               GradPlacement::sharded,
               spec.ties_head() ? GradPlacement::partial : GradPlacement::sharded});
  return finished(std::move(unit));
}

UnitSpec build_head(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::head, -1, "head");
  place_outer(unit, spec, {.path = kFinalNorm, .shape = {spec.config.hidden_size}});
  if (spec.head.classifies()) {
    place_base(unit, "", spec,
               {.path = kScore, .shape = {spec.head.values, spec.config.hidden_size}, .decays = true, .role = Role::value_head});
  } else if (spec.head.has_linear()) {
    place_base(unit, "", spec,
               {.path = kValueHead, .shape = {1, spec.config.hidden_size}, .decays = true, .role = Role::value_head});
    place_base(unit, "", spec, {.path = kValueHeadBias, .shape = {1}, .role = Role::value_head});
  } else if (spec.head.reads_tokens() && !spec.config.tie_word_embeddings) {
    place_outer(unit, spec,
                {kLmHead, {spec.config.vocab_size, spec.config.hidden_size}, true, /*decays=*/true, GradPlacement::sharded});
    if (spec.untied) unit.params.back().parts = spec.units.front().params.front().in_files();
  }
  return finished(std::move(unit));
}

}  // namespace

GradientAxes gradient_axes(GradPlacement tensor_axis, GradPlacement pipeline_axis) {
  GradientAxes axes{};
  const auto along = [&](comm::Axis axis) -> GradPlacement& { return axes[static_cast<std::size_t>(axis)]; };
  for (const comm::Axis axis : {comm::Axis::replicate, comm::Axis::shard, comm::Axis::context})
    along(axis) = GradPlacement::partial;
  along(comm::Axis::pipeline) = pipeline_axis;
  along(comm::Axis::tensor) = tensor_axis;
  return axes;
}

std::vector<FileTensor> ParamSpec::in_files() const {
  return parts.empty() ? std::vector<FileTensor>{{name, shape}} : parts;
}

ParamSpec ParamSpec::whole() const {
  ParamSpec all = *this;
  all.boxes = {Box::whole(shape)};
  all.local_shape = shape;
  all.numel = static_cast<std::int64_t>(elements(all.boxes));
  return all;
}

std::int64_t logical_index(const ParamSpec& param, std::int64_t i) {
  return static_cast<std::int64_t>(index_in_whole(param.boxes, param.shape, static_cast<std::uint64_t>(i)));
}

std::vector<int> ModelSpec::units_of_block(int block) const {
  if (block == head_unit() && ties_head()) return {block, 0};
  return {block};
}

bool ModelSpec::has_experts(int block) const {
  const UnitSpec& unit = units.at(static_cast<std::size_t>(block));
  return unit.kind == UnitSpec::Kind::layer &&
         std::ranges::any_of(layers.at(static_cast<std::size_t>(unit.layer)),
                             [](const SubLayerSpec& sublayer) { return sublayer.kind == SubLayerKind::experts; });
}

std::int64_t ModelSpec::num_params(bool trainable_only) const {
  std::int64_t n = 0;
  for (const auto& unit : units)
    for (const auto& p : unit.params)
      if (p.trainable || !trainable_only) n += p.numel;
  return n;
}

int ModelSpec::lowest_trained_block() const {
  const auto found = std::ranges::find_if(units, [](const UnitSpec& unit) { return unit.trainable_numel > 0; });
  return static_cast<int>(found - units.begin());
}

std::vector<FileTensor> ModelSpec::in_adapter(const ParamSpec& param) const {
  if (is_factor(param.role)) return param.in_files();
  if (!in_model(param) || finetuning != Finetuning::adapter || !param.trainable) return {};
  return {{kAdapterPrefix + param.name, param.shape}};
}

ModelSpec ModelSpec::build(const ModelConfig& config, Finetuning finetuning, const AdapterConfig& adapter,
                           const WeightStorage& weight_storage, Head head, const FreezeConfig& freeze, Share share) {
  QFT_ASSERT(share.ranks == 1, "{} tensor ranks are not implemented", share.ranks);
  const AdapterKind* kind = kind_of(adapter);
  QFT_ASSERT((finetuning == Finetuning::adapter) == (kind != nullptr), "{} does not match the fine-tuning method",
             kind == nullptr ? "no adapter" : kind->name);
  ModelSpec spec;
  spec.config = config;
  spec.adapter = adapter;
  spec.adapter.targets().keep_targets(lora_modules(config));
  if (spec.adapter.targets().text_prefix.empty()) spec.adapter.targets().text_prefix = config.module_prefix;
  spec.finetuning = finetuning;
  spec.head = head;
  spec.share = share;
  if (!head.reads_tokens() && !config.tie_word_embeddings) spec.config.other_prefixes.emplace_back(kLmHead);
  spec.freeze = freeze;
  const auto apart = [&](const char* name) { return is_saved_whole(spec.adapter.targets().modules_to_save, name); };
  spec.untied = spec.ties_head() && (apart(kEmbedTokens) || apart(kLmHead));
  if (spec.untied) spec.config.tie_word_embeddings = false;
  for (int i = 0; i < config.num_layers; ++i) spec.layers.push_back(describe_layer(config, i));
  if (kind != nullptr) kind->wrap(spec.adapter, config, spec.layers);
  spec.units.push_back(build_embedding(spec));
  for (int i = 0; i < config.num_layers; ++i) spec.units.push_back(build_layer(spec, i, weight_storage));
  spec.units.push_back(build_head(spec));
  require_trained_parts(spec);
  if (kind != nullptr) require_wrapped(spec);
  return spec;
}

}  // namespace qft::model
