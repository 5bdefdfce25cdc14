// What follows from a unit's weights and is needed in each product (model::derive_values): computed where it is acquired for the
// first time after they have changed. Private to parallel.
#pragma once

#include "qft/model/weights.h"
#include "qft/optim/precision.h"

#include <cstdint>

#include <ATen/ops/zeros.h>

namespace qft::parallel {

class DerivedValues {
 public:
  DerivedValues() = default;
  /// Both must outlive it.
  DerivedValues(const model::ModelSpec& spec, const model::UnitSpec& unit, at::ScalarType compute, c10::Device device)
      : spec_(&spec), unit_(&unit) {
    const auto type = compute == at::kDouble ? at::kDouble : at::kFloat;
    if (unit.derived_numel > 0) values_ = at::zeros({unit.derived_numel}, at::TensorOptions().dtype(type).device(device));
  }

  bool empty() const { return !values_.defined(); }
  std::int64_t bytes() const { return empty() ? 0 : static_cast<std::int64_t>(values_.nbytes()); }
  void weights_changed() { current_ = false; }
  /// Puts them, at the same address each time, into the buffers of the unit, whose weights are there.
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
