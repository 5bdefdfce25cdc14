// OFT: inputs of its products, and initial values.
#include "qft/core/error.h"
#include "qft/ops/oft.h"

#include <algorithm>

#include "../binding.h"
#include "code.h"

namespace qft::model {
namespace {

/// Returns R - I for the blocks of a linear.
at::Tensor rotations_of(const ParamSpec& skew, const OftRows& rows, const at::Tensor& derived) {
  return derived.narrow(0, skew.derived_offset, skew.derived_numel).view({rows.blocks, rows.block, rows.block});
}

/// Adds nothing if the unit has no rotations.
void bind(const ModelSpec& /*spec*/, const UnitSpec& unit, const ParamGroup& group, std::uint32_t /*site*/,
          const UnitBuffers& flat, Projection& p) {
  std::int64_t row0 = 0;
  for (std::size_t i = 0; i < group.linears.size(); ++i) {
    const LinearSpec& linear = group.linears[i];
    const auto rows = std::ranges::find(group.oft, i, &OftRows::linear);
    if (rows != group.oft.end()) {
      const ParamSpec* skew = find_param(unit, linear.path + kOftR);
      QFT_ASSERT(skew != nullptr && flat.derived.defined(), "{} has no rotations for {}", unit.name, linear.path);
      const Weight w = view_of(*skew, flat);
      p.weights.oft.push_back({w.value, rotations_of(*skew, *rows, flat.derived), row0, rows_of(unit, linear), rows->terms});
      if (flat.grad.defined()) p.grads.oft.push_back(w.grad);
    }
    if (!group.is_stack()) row0 += rows_of(unit, linear);
  }
}

void derive(const ModelSpec& spec, const UnitSpec& unit, const UnitBuffers& flat, const RowSharing& /*tensor*/) {
  for (const SubLayerSpec& sublayer : spec.layers.at(static_cast<std::size_t>(unit.layer)))
    for (const ParamGroup& group : sublayer.params)
      for (const OftRows& rows : group.oft) {
        const ParamSpec* skew = find_param(unit, group.linears[rows.linear].path + kOftR);
        QFT_ASSERT(skew != nullptr, "{} has no rotations for {}", unit.name, group.linears[rows.linear].path);
        ops::oft_rotations(view_of(*skew, flat).value, rows.terms, rotations_of(*skew, rows, flat.derived));
      }
}

}  // namespace

/// Rotations start as the identity.
const AdapterCode kOftCode{[](const AdapterConfig& config) { return config.oft.enabled(); }, bind,
                           [](const ParamSpec&, std::uint64_t, const Shard& dst) { dst.values.zero_(); }, derive};

}  // namespace qft::model
