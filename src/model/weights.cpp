#include "qft/model/weights.h"

#include "qft/core/error.h"
#include "qft/ops/quantized.h"

#include <algorithm>

#include "adapters/code.h"
#include "binding.h"

namespace qft::model {
namespace {

const at::Tensor& buffer_of(const ParamSpec& param, const UnitBuffers& flat) {
  switch (param.part()) {
    case Part::quantized:
      return flat.decoded;
    case Part::trainable:
      return flat.trainable;
    default:
      return flat.frozen;
  }
}

/// Returns one view of the tensors path + `suffix` of all linears in the group, stacked by rows; empty if the linears have none.
Weight bind_fused(const UnitSpec& unit, const ParamGroup& group, const char* suffix, const UnitBuffers& flat) {
  const ParamSpec* first = find_param(unit, group.linears.front().path + suffix);
  if (first == nullptr) return {};
  Shape shape = first->local_shape;
  shape[0] = 0;
  std::int64_t end = first->offset;
  for (const LinearSpec& linear : group.linears) {
    const ParamSpec* p = find_param(unit, linear.path + suffix);
    QFT_ASSERT(p != nullptr && p->offset == end && p->part() == first->part(), "{}: {} is not adjacent to its group", unit.name,
               first->name);
    end += p->numel;
    shape[0] += p->local_shape[0];
  }
  return view_of(*first, end - first->offset, shape, flat);
}

/// Binds the stacked weights of all experts.
Projection bind_stack(const UnitSpec& unit, const ParamGroup& group, const UnitBuffers& flat) {
  const Weight w = bind_weight(unit, path_of(group.stack), flat);
  Projection p;
  p.weights.weight = w.value;
  p.grads.weight = w.grad;
  return p;
}

/// If ranks have columns of the weight, they compute terms of the outputs: only the first one adds the bias.
Projection bind_projection(const UnitSpec& unit, const ParamGroup& group, const UnitBuffers& flat, const Share& share) {
  if (group.is_stack()) return bind_stack(unit, group, flat);
  Projection p;
  const Weight w = bind_fused(unit, group, ".weight", flat),
               b = group.linears.front().columns.is_cut() && share.rank > 0 ? Weight{} : bind_fused(unit, group, ".bias", flat);
  p.weights.weight = w.value;
  p.grads.weight = w.grad;
  p.weights.bias = b.value;
  p.grads.bias = b.grad;
  return p;
}

}  // namespace

const ParamSpec* find_param(const UnitSpec& unit, std::string_view path) {
  const auto found = std::ranges::find(unit.params, path, &ParamSpec::path);
  return found == unit.params.end() ? nullptr : &*found;
}

Weight view_of(const ParamSpec& first, std::int64_t numel, at::IntArrayRef shape, const UnitBuffers& flat) {
  const auto view = [&](const at::Tensor& buffer) {
    return buffer.defined() ? buffer.narrow(0, first.offset, numel).view(shape) : at::Tensor();
  };
  return {view(buffer_of(first, flat)), first.trainable ? view(flat.grad) : at::Tensor()};
}

Weight view_of(const ParamSpec& param, const UnitBuffers& flat) {
  return view_of(param, param.numel, param.local_shape, flat);
}

std::int64_t rows_of(const UnitSpec& unit, const LinearSpec& linear) {
  const ParamSpec* p = find_param(unit, linear.path + ".weight");
  QFT_ASSERT(p != nullptr, "unit {} has no linear {}", unit.name, linear.path);
  return p->local_shape[0];
}

bool Projection::needs_input() const {
  return grads.weight.defined() || !grads.lora.empty() || !grads.oft.empty();
}

LayerWeights bind_layer(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, bool adapter) {
  LayerWeights layer;
  const AdapterCode* code = adapter ? code_of(spec.adapter) : nullptr;
  std::uint32_t site = 0;
  for (const auto& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer))) {
    SubLayerWeights& w = layer.emplace_back();
    w.norm = bind_weight(unit, sublayer.norm, flat);
    for (const ParamGroup& group : sublayer.params) {
      if (group.linears.empty()) {
        w.vectors.push_back(bind_weight(unit, group.tensor, flat));
        continue;
      }
      w.linears.push_back(bind_projection(unit, group, flat, spec.share));
      if (code != nullptr) code->bind(spec, unit, group, site, flat, w.linears.back());
      site += static_cast<std::uint32_t>(std::ssize(group.linears) * group.experts());
    }
  }
  return layer;
}

Weight bind_weight(const UnitSpec& unit, std::string_view path, const UnitBuffers& flat) {
  const ParamSpec* p = find_param(unit, path);
  QFT_ASSERT(p != nullptr, "unit {} has no tensor {}", unit.name, path);
  return view_of(*p, flat);
}

HeadWeights bind_head(const ModelSpec& spec, const UnitBuffers& head, const UnitBuffers& embedding) {
  const auto own = [&](const char* path) { return bind_weight(spec.units.back(), path, head); };
  if (spec.head.kind == Head::Kind::vector) return {own(kFinalNorm)};
  if (spec.head.classifies()) return {own(kFinalNorm), own(kScore)};
  if (spec.head.kind == Head::Kind::value) return {own(kFinalNorm), own(kValueHead), own(kValueHeadBias)};
  return {own(kFinalNorm), spec.ties_head() ? bind_weight(spec.units.front(), kEmbedTokens, embedding) : own(kLmHead)};
}

void decode(const UnitSpec& unit, const at::Tensor& packed, const at::Tensor& decoded) {
  for (const ParamSpec& p : unit.params)
    for (std::int64_t i = 0; p.is_quantized() && i < p.packed_pieces; ++i)
      ops::dequantize(packed.narrow(0, p.packed_offset + i * p.packed.bytes, p.packed.bytes), p.packed,
                      decoded.narrow(0, p.offset + i * p.packed.numel(), p.packed.numel()));
}

void derive_values(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, const RowSharing& tensor) {
  if (unit.derived_numel > 0) code_of(spec.adapter)->derive(spec, unit, flat, tensor);
}

at::Tensor param_view(const ParamSpec& param, const UnitBuffers& flat) {
  return buffer_of(param, flat).narrow(0, param.offset, param.numel);
}

}  // namespace qft::model
