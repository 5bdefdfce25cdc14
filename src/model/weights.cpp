#include "qft/model/weights.h"

#include "qft/core/error.h"
#include "qft/ops/dora.h"
#include "qft/ops/quantized.h"

#include <algorithm>

namespace qft::model {
namespace {

const ParamSpec* find(const UnitSpec& unit, std::string_view path) {
  for (const auto& p : unit.params)
    if (p.path == path) return &p;
  return nullptr;
}

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

/// A parameter in the flat buffer that holds it, and its gradient.
Weight view_of(const ParamSpec& first, std::int64_t numel, at::IntArrayRef shape, const UnitBuffers& flat) {
  const auto view = [&](const at::Tensor& buffer) {
    return buffer.defined() ? buffer.narrow(0, first.offset, numel).view(shape) : at::Tensor();
  };
  return {view(buffer_of(first, flat)), first.trainable ? view(flat.grad) : at::Tensor()};
}

/// A tensor of each linear of the group, `suffix` of its path, seen as one: rows add up. Nothing where they have none.
Weight bind_fused(const UnitSpec& unit, const ParamGroup& group, const char* suffix, const UnitBuffers& flat) {
  const ParamSpec* first = find(unit, group.linears.front().path + suffix);
  if (first == nullptr) return {};
  Shape shape = first->box.extent;
  shape[0] = 0;
  std::int64_t end = first->offset;
  for (const LinearSpec& linear : group.linears) {
    const ParamSpec* p = find(unit, linear.path + suffix);
    QFT_ASSERT(p != nullptr && p->offset == end && p->part() == first->part(), "{}: {} is not adjacent to its group", unit.name,
               first->name);
    end += p->numel;
    shape[0] += p->box.extent[0];
  }
  return view_of(*first, end - first->offset, shape, flat);
}

/// The outputs of a linear that this rank computes.
std::int64_t rows_of(const UnitSpec& unit, const LinearSpec& linear) {
  const ParamSpec* p = find(unit, linear.path + ".weight");
  QFT_ASSERT(p != nullptr, "unit {} has no linear {}", unit.name, linear.path);
  return p->box.extent[0];
}

/// Of the rows of a magnitude's linear; their norms follow them.
at::Tensor row_factors(const ParamSpec& magnitude, const at::Tensor& row_scales) {
  return row_scales.narrow(0, magnitude.scales_offset, magnitude.numel);
}

/// Where a linear's rows are among those of its group, and what else is known of them.
struct AdaptedRows {
  std::int64_t row0, rows;
  double scaling;
  std::uint32_t site;
};

/// Adds the factors of a linear, with DoRA's magnitude, where the unit has them.
void bind_lora(const UnitSpec& unit, const LinearSpec& linear, const AdaptedRows& at, const UnitBuffers& flat, Projection& p) {
  const ParamSpec *a = find(unit, linear.path + kLoraA), *b = find(unit, linear.path + kLoraB);
  if (a == nullptr || b == nullptr) return;
  const auto view = [&](const ParamSpec& param) { return view_of(param, param.numel, param.box.extent, flat); };
  const Weight down = view(*a), up = view(*b);
  ops::LoraPart part{down.value, up.value, at.row0, at.rows, at.scaling, at.site};
  ops::LinearGrads::Lora grads{down.grad, up.grad};
  if (const ParamSpec* magnitude = find(unit, linear.path + kMagnitude)) {
    QFT_ASSERT(flat.row_scales.defined(), "{} has no row scales", unit.name);
    part.factor = row_factors(*magnitude, flat.row_scales);
    part.norm = row_norms(*magnitude, flat.row_scales);
    grads.magnitude = view(*magnitude).grad;
  }
  p.weights.lora.push_back(part);
  if (flat.grad.defined()) p.grads.lora.push_back(grads);
}

/// The stacked weights of all experts, and their factors: those of one expert lie as those of a group of linears do.
Projection bind_stack(const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat) {
  const std::string path = group.stack.path + "." + group.stack.name;
  Projection p;
  const Weight w = bind_weight(unit, path, flat);
  p.weights.weight = w.value;
  p.grads.weight = w.grad;
  const std::vector<LoraRows>& wrapped = group.lora;
  if (wrapped.empty() || find(unit, path + kLoraA) == nullptr) return p;
  const Weight a = bind_weight(unit, path + kLoraA, flat), b = bind_weight(unit, path + kLoraB, flat);
  std::int64_t rank0 = 0, b_row0 = 0;
  for (const LoraRows& part : wrapped) {
    const auto ranks = [&](const at::Tensor& t) { return t.narrow(1, rank0, part.rank); };
    const auto rows = [&](const at::Tensor& t) { return t.narrow(1, b_row0, part.rows); };
    p.weights.lora.push_back(
        {ranks(a.value), rows(b.value), part.row0, part.rows, part.scaling, site + static_cast<std::uint32_t>(part.linear)});
    if (flat.grad.defined()) p.grads.lora.push_back({ranks(a.grad), rows(b.grad)});
    rank0 += part.rank;
    b_row0 += part.rows;
  }
  return p;
}

/// `site`: of the group's first linear, among those of the layer.
Projection bind_projection(const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat) {
  if (group.is_stack()) return bind_stack(unit, group, site, flat);
  Projection p;
  const Weight w = bind_fused(unit, group, ".weight", flat), b = bind_fused(unit, group, ".bias", flat);
  p.weights.weight = w.value;
  p.grads.weight = w.grad;
  p.weights.bias = b.value;
  p.grads.bias = b.grad;
  std::int64_t row0 = 0;
  for (std::size_t i = 0; i < group.linears.size(); ++i, ++site) {
    const std::int64_t rows = rows_of(unit, group.linears[i]);
    if (const auto part = std::ranges::find(group.lora, i, &LoraRows::linear); part != group.lora.end())
      bind_lora(unit, group.linears[i], {row0, rows, part->scaling, site}, flat, p);
    row0 += rows;
  }
  return p;
}

}  // namespace

bool Projection::needs_input() const {
  return grads.weight.defined() || !grads.lora.empty();
}

LayerWeights bind_layer(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, bool adapter) {
  LayerWeights layer;
  std::uint32_t site = 0;
  for (const auto& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer))) {
    SubLayerWeights& w = layer.emplace_back();
    w.norm = bind_weight(unit, sublayer.norm, flat);
    for (const ParamGroup& group : sublayer.params) {
      if (group.linears.empty()) {
        w.vectors.push_back(bind_weight(unit, group.tensor, flat));
        continue;
      }
      w.linears.push_back(bind_projection(unit, group, site, flat));
      if (!adapter) w.linears.back().weights.lora.clear(), w.linears.back().grads.lora.clear();
      site += static_cast<std::uint32_t>(std::ssize(group.linears) * group.experts());
    }
  }
  return layer;
}

Weight bind_weight(const UnitSpec& unit, std::string_view path, const UnitBuffers& flat) {
  const ParamSpec* p = find(unit, path);
  QFT_ASSERT(p != nullptr, "unit {} has no tensor {}", unit.name, path);
  return view_of(*p, p->numel, p->box.extent, flat);
}

HeadWeights bind_head(const ModelSpec& spec, const UnitBuffers& head, const UnitBuffers& embedding) {
  const auto own = [&](const char* path) { return bind_weight(spec.units.back(), path, head); };
  if (spec.head.classifies) return {own(kFinalNorm), own(kScore)};
  if (spec.head.of_sequences()) return {own(kFinalNorm), own(kValueHead), own(kValueHeadBias)};
  return {own(kFinalNorm), spec.ties_head() ? bind_weight(spec.units.front(), kEmbedTokens, embedding) : own(kLmHead)};
}

void decode(const UnitSpec& unit, const at::Tensor& packed, const at::Tensor& decoded) {
  for (const ParamSpec& p : unit.params)
    for (std::int64_t i = 0; p.is_quantized() && i < p.packed_pieces; ++i)
      ops::dequantize(packed.narrow(0, p.packed_offset + i * p.packed.bytes, p.packed.bytes), p.packed,
                      decoded.narrow(0, p.offset + i * p.packed.numel(), p.packed.numel()));
}

at::Tensor row_norms(const ParamSpec& magnitude, const at::Tensor& row_scales) {
  return row_scales.narrow(0, magnitude.scales_offset + magnitude.numel, magnitude.numel);
}

void compute_row_scales(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat) {
  if (unit.scales_numel == 0) return;
  for (const SubLayerSpec& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer)))
    for (const ParamGroup& group : sublayer.params)
      for (const LoraRows& rows : group.lora) {
        const std::string& path = group.linears[rows.linear].path;
        const ParamSpec* magnitude = find(unit, path + kMagnitude);
        if (magnitude == nullptr) continue;
        const auto value = [&](const char* suffix) { return bind_weight(unit, path + suffix, flat).value; };
        const at::Tensor norms = row_norms(*magnitude, flat.row_scales);
        ops::dora_norms(value(".weight"), value(kLoraA), value(kLoraB), rows.scaling, norms);
        ops::dora_factors(value(kMagnitude), norms, row_factors(*magnitude, flat.row_scales));
      }
}

at::Tensor param_view(const ParamSpec& param, const UnitBuffers& flat) {
  return buffer_of(param, flat).narrow(0, param.offset, param.numel);
}

}  // namespace qft::model
