// DoRA's row scales of a unit, which its weights decide: computed where it is acquired for the first time after they have
// changed. Private to parallel.
#pragma once

#include "qft/model/weights.h"
#include "qft/optim/precision.h"

#include <cstdint>

#include <ATen/ops/zeros.h>

namespace qft::parallel {

class RowScales {
 public:
  RowScales() = default;
  /// Both must outlive it.
  RowScales(const model::ModelSpec& spec, const model::UnitSpec& unit, at::ScalarType compute, c10::Device device)
      : spec_(&spec), unit_(&unit) {
    const auto type = compute == at::kDouble ? at::kDouble : at::kFloat;
    if (unit.scales_numel > 0) values_ = at::zeros({unit.scales_numel}, at::TensorOptions().dtype(type).device(device));
  }

  bool empty() const { return !values_.defined(); }
  std::int64_t bytes() const { return empty() ? 0 : static_cast<std::int64_t>(values_.nbytes()); }
  void weights_changed() { current_ = false; }
  /// Puts them, at the same address each time, into the buffers of the unit, whose weights are there.
  void fill(model::UnitBuffers& buffers) {
    if (empty()) return;
    buffers.row_scales = values_;
    if (!current_) model::compute_row_scales(*spec_, *unit_, buffers);
    current_ = true;
  }

 private:
  const model::ModelSpec* spec_ = nullptr;
  const model::UnitSpec* unit_ = nullptr;
  at::Tensor values_;
  bool current_ = false;
};

}  // namespace qft::parallel
