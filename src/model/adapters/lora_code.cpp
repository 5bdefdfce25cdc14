// LoRA and DoRA: inputs of their products, and initial values.
#include "qft/core/error.h"
#include "qft/ops/dora.h"

#include <algorithm>
#include <cmath>

#include "../binding.h"
#include "../initial_values.h"
#include "code.h"

namespace qft::model {
namespace {

/// Returns DoRA's factors for the rows of a magnitude's linear; the rows' norms follow them.
at::Tensor row_factors(const ParamSpec& magnitude, const at::Tensor& derived) {
  return derived.narrow(0, magnitude.derived_offset, magnitude.numel);
}

/// A linear's rows within its group's rows, with its scaling and site.
struct AdaptedRows {
  std::int64_t row0, rows;
  double scaling;
  std::uint32_t site;
};

/// Adds a linear's LoRA factors and DoRA magnitude, if the unit has them.
void bind_lora(const UnitSpec& unit, const LinearSpec& linear, const AdaptedRows& at, const UnitBuffers& flat, Projection& p) {
  const ParamSpec *a = find_param(unit, linear.path + kLoraA), *b = find_param(unit, linear.path + kLoraB);
  if (a == nullptr || b == nullptr) return;
  const Weight down = view_of(*a, flat), up = view_of(*b, flat);
  ops::LoraPart part{down.value, up.value, at.row0, at.rows, at.scaling, at.site};
  if (linear.columns.is_cut()) part.first_feature = linear.columns.pieces.front().begin;
  ops::LinearGrads::Lora grads{down.grad, up.grad};
  if (const ParamSpec* magnitude = find_param(unit, linear.path + kMagnitude)) {
    QFT_ASSERT(flat.derived.defined(), "{} has no values for DoRA", unit.name);
    part.factor = row_factors(*magnitude, flat.derived);
    part.norm = row_norms(*magnitude, flat.derived);
    grads.magnitude = view_of(*magnitude, flat).grad;
  }
  p.weights.lora.push_back(part);
  if (flat.grad.defined()) p.grads.lora.push_back(grads);
}

/// Adds the factors of all experts; one expert's factors are laid out like a projection group's.
void bind_stack(const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat, Projection& p) {
  const std::string path = path_of(group.stack);
  const std::vector<LoraRows>& wrapped = group.lora;
  if (wrapped.empty() || find_param(unit, path + kLoraA) == nullptr) return;
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
}

void bind(const ModelSpec& /*spec*/, const UnitSpec& unit, const ParamGroup& group, std::uint32_t site, const UnitBuffers& flat,
          Projection& p) {
  if (group.is_stack()) return bind_stack(unit, group, site, flat, p);
  std::int64_t row0 = 0;
  for (std::size_t i = 0; i < group.linears.size(); ++i, ++site) {
    const std::int64_t rows = rows_of(unit, group.linears[i]);
    if (const auto part = std::ranges::find(group.lora, i, &LoraRows::linear); part != group.lora.end())
      bind_lora(unit, group.linears[i], {row0, rows, part->scaling, site}, flat, p);
    row0 += rows;
  }
}

void initialise(const ParamSpec& param, std::uint64_t seed, const Shard& dst) {
  if (param.role == Role::lora_a)
    fill_uniform(param, seed, 1.0 / std::sqrt(static_cast<double>(param.shape.back())), dst);
  else  // init_magnitude() computes magnitudes from the weights
    dst.values.zero_();
}

void derive(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, const RowSharing& tensor) {
  for (const SubLayerSpec& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer)))
    for (const ParamGroup& group : sublayer.params)
      for (const LoraRows& rows : group.lora) {
        const LinearSpec& linear = group.linears[rows.linear];
        const std::string& path = linear.path;
        const ParamSpec* magnitude = find_param(unit, path + kMagnitude);
        if (magnitude == nullptr) continue;
        const auto value = [&](const char* suffix) { return bind_weight(unit, path + suffix, flat).value; };
        const at::Tensor norms = row_norms(*magnitude, flat.derived);
        ops::dora_norms(value(".weight"), value(kLoraA), value(kLoraB), rows.scaling, norms);
        if (linear.columns.is_cut() && !tensor.alone()) {  // of each row, this rank has some columns
          norms.square_();
          tensor.sum(norms);
          norms.sqrt_();
        }
        ops::dora_factors(value(kMagnitude), norms, row_factors(*magnitude, flat.derived));
      }
}

}  // namespace

at::Tensor row_norms(const ParamSpec& magnitude, const at::Tensor& derived) {
  return derived.narrow(0, magnitude.derived_offset + magnitude.numel, magnitude.numel);
}

const AdapterCode kLoraCode{[](const AdapterConfig& config) { return config.lora.enabled(); }, bind, initialise, derive};

}  // namespace qft::model
