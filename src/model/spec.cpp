#include "qft/model/spec.h"

#include "qft/core/error.h"

#include <algorithm>
#include <utility>

#include "adapters/kinds.h"
#include "base_params.h"
#include "layer_split.h"
#include "place.h"
#include "sublayers/descriptions.h"

namespace qft::model {
namespace {

UnitSpec unit_of(UnitSpec::Kind kind, int layer, std::string name) {
  UnitSpec unit;
  unit.kind = kind;
  unit.layer = layer;
  unit.name = std::move(name);
  return unit;
}

UnitSpec finished(UnitSpec unit) {
  unit.frozen_numel = aligned(unit.frozen_numel);
  unit.trainable_numel = aligned(unit.trainable_numel);
  unit.quantized_numel = aligned(unit.quantized_numel);
  return unit;
}

/// Places an adapter's parameters for a group of linears.
void place_adapter(UnitSpec& unit, std::vector<AdapterParam> params) {
  std::vector<ParamSpec> group;
  for (AdapterParam& added : params) {
    if (added.starts_group) place(unit, std::exchange(group, {}));
    group.push_back(std::move(added.param));
  }
  place(unit, std::move(group));
}

UnitSpec build_layer(const ModelSpec& spec, int index, const WeightStorage& weight_storage) {
  UnitSpec unit = unit_of(UnitSpec::Kind::layer, index, fmt::format("layer {}", index));
  const std::string prefix = layer_prefix(spec.config, index);
  const Layer& layer = spec.layers[static_cast<std::size_t>(index)];
  for (const auto& sublayer : layer) {
    place_single(unit, prefix, spec, {.path = sublayer.norm, .rows = Cut::none(spec.config.hidden_size)});
    for (const ParamGroup& group : sublayer.params) place_group(unit, prefix, spec, group, weight_storage);
  }
  if (const AdapterKind* kind = kind_of(spec.adapter))
    for (const auto& sublayer : layer)
      for (const ParamGroup& group : sublayer.params) place_adapter(unit, kind->params(spec, index, prefix, group));
  return finished(std::move(unit));
}

/// Adds a tensor outside the layers.
void place_outer(UnitSpec& unit, const ModelSpec& spec, const BaseTensor& tensor) {
  constexpr std::string_view kDecoder = "model.";
  place_single(unit, "", spec, tensor);
  std::string& name = unit.params.back().name;
  if (name.starts_with(kDecoder)) name.replace(0, kDecoder.size(), spec.config.text_prefix);
}

BaseTensor vocabulary_table(const ModelSpec& spec, const char* path) {
  return {.path = path, .rows = vocabulary_rows(spec.config, spec.share), .inner = {spec.config.hidden_size}, .decays = true};
}

UnitSpec build_embedding(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::embedding, -1, "embedding");
  place_outer(unit, spec, vocabulary_table(spec, kEmbedTokens));
  // The first and the last pipeline stage use a tied table.
  if (spec.ties_head()) unit.params.back().gradient[static_cast<std::size_t>(comm::Axis::pipeline)] = GradPlacement::partial;
  return finished(std::move(unit));
}

UnitSpec build_head(const ModelSpec& spec) {
  UnitSpec unit = unit_of(UnitSpec::Kind::head, -1, "head");
  const std::int64_t hidden = spec.config.hidden_size;
  const auto of_head = [&](const char* path, std::int64_t rows, Shape inner, bool decays) {
    place_single(unit, "", spec,
                 {.path = path, .rows = Cut::none(rows), .inner = std::move(inner), .decays = decays, .role = Role::value_head});
  };
  place_outer(unit, spec, {.path = kFinalNorm, .rows = Cut::none(hidden)});
  if (spec.head.classifies()) {
    of_head(kScore, spec.head.values, {hidden}, true);
  } else if (spec.head.has_linear()) {
    of_head(kValueHead, 1, {hidden}, true);
    of_head(kValueHeadBias, 1, {}, false);
  } else if (spec.head.reads_tokens() && !spec.config.tie_word_embeddings) {
    place_outer(unit, spec, vocabulary_table(spec, kLmHead));
    if (spec.untied) unit.params.back().parts = spec.units.front().params.front().in_files();
  }
  return finished(std::move(unit));
}

}  // namespace

std::vector<FileTensor> ParamSpec::in_files() const {
  return parts.empty() ? std::vector<FileTensor>{{name, shape}} : parts;
}

ParamSpec ParamSpec::whole() const {
  ParamSpec all = *this;
  set_whole(all, shape, {});
  all.packed = packed_whole;
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
      if (p.trainable || !trainable_only) n += static_cast<std::int64_t>(Box::whole(p.shape).elements());
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
                           const WeightStorage& weight_storage, Head head, const FreezeConfig& freeze, Share share,
                           Share context) {
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
  spec.context = context;
  if (!head.reads_tokens() && !config.tie_word_embeddings) spec.config.other_prefixes.emplace_back(kLmHead);
  spec.freeze = freeze;
  const auto apart = [&](const char* name) { return is_saved_whole(spec.adapter.targets().modules_to_save, name); };
  spec.untied = spec.ties_head() && (apart(kEmbedTokens) || apart(kLmHead));
  if (spec.untied) spec.config.tie_word_embeddings = false;
  if (share.ranks > 1) spec.require_share(share.ranks, weight_storage);
  if (context.ranks > 1) spec.require_context(context.ranks, share.ranks, weight_storage);
  for (int i = 0; i < config.num_layers; ++i)
    spec.layers.push_back(share.ranks * context.ranks > 1 ? describe_layer(config, i, split_of(spec, i, share, weight_storage))
                                                          : describe_layer(config, i));
  spec.vocabulary = vocabulary_rows(config, share).pieces.front();
  if (kind != nullptr) kind->wrap(spec.adapter, config, spec.layers);
  spec.units.push_back(build_embedding(spec));
  for (int i = 0; i < config.num_layers; ++i) spec.units.push_back(build_layer(spec, i, weight_storage));
  spec.units.push_back(build_head(spec));
  require_trained_parts(spec);
  if (kind != nullptr) require_wrapped(spec);
  return spec;
}

}  // namespace qft::model
