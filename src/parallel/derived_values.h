// Values computed from a unit's weights and used in each product (model::derive_values). Computed at the first acquire after the
// weights have changed. Private to parallel.
#pragma once

#include "qft/model/weights.h"
#include "qft/optim/precision.h"

#include <cstdint>

#include <ATen/ops/zeros.h>

namespace qft::parallel {

class DerivedValues {
 public:
  DerivedValues() = default;
  /// Both must outlive this object.
  DerivedValues(const model::ModelSpec& spec, const model::UnitSpec& unit, at::ScalarType compute, c10::Device device)
      : spec_(&spec), unit_(&unit) {
    const auto type = compute == at::kDouble ? at::kDouble : at::kFloat;
    if (unit.derived_numel > 0) values_ = at::zeros({unit.derived_numel}, at::TensorOptions().dtype(type).device(device));
  }

  bool empty() const { return !values_.defined(); }
  std::int64_t bytes() const { return empty() ? 0 : static_cast<std::int64_t>(values_.nbytes()); }
  void weights_changed() { current_ = false; }
  /// Puts the values into the buffers of a unit with gathered weights; their address never changes.
  void fill(model::UnitBuffers& buffers) {
    if (empty()) return;
    buffers.derived = values_;
    if (!current_) model::derive_values(*spec_, *unit_, buffers);
    current_ = true;
  }

 private:
  const model::ModelSpec* spec_ = nullptr;
  const model::UnitSpec* unit_ = nullptr;
  at::Tensor values_;
  bool current_ = false;
};

}  // namespace qft::parallel
