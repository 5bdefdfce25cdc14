// Values computed from a unit's weights and used in each product (model::derive_values), computed at the first acquire after the
// weights have changed; and the decoded copy of a unit's quantised weights, which exists while the unit is acquired. Private to
// parallel.
#pragma once

#include "qft/model/weights.h"
#include "qft/optim/precision.h"
#include "qft/parallel/sharded_buffer.h"

#include <cstdint>

#include <ATen/ops/zeros.h>

namespace qft::parallel {

class DerivedValues {
 public:
  DerivedValues() = default;
  /// Both must outlive this object.
  DerivedValues(const model::ModelSpec& spec, const model::UnitSpec& unit, at::ScalarType compute, c10::Device device,
                const model::RowSharing& tensor)
      : spec_(&spec), unit_(&unit), tensor_(tensor) {
    const auto type = compute == at::kDouble ? at::kDouble : at::kFloat;
    if (unit.derived_numel > 0) values_ = at::zeros({unit.derived_numel}, at::TensorOptions().dtype(type).device(device));
  }

  bool empty() const { return !values_.defined(); }
  std::int64_t bytes() const { return empty() ? 0 : static_cast<std::int64_t>(values_.nbytes()); }
  void weights_changed() { current_ = false; }
  /// Puts the values into the buffers of a unit with gathered weights; their address never changes. Collective over the ranks
  /// that share matrices.
  void fill(model::UnitBuffers& buffers) {
    if (empty()) return;
    buffers.derived = values_;
    if (!current_) model::derive_values(*spec_, *unit_, buffers, tensor_);
    current_ = true;
  }

 private:
  const model::ModelSpec* spec_ = nullptr;
  const model::UnitSpec* unit_ = nullptr;
  model::RowSharing tensor_;
  at::Tensor values_;
  bool current_ = false;
};

class DecodedBuffer {
 public:
  DecodedBuffer() = default;
  /// All must outlive the buffer.
  DecodedBuffer(const model::UnitSpec& unit, const at::TensorOptions& options, BlockPool& pool, Gauge& gathered)
      : unit_(&unit), options_(options), pool_(&pool), gathered_(&gathered) {}

  bool empty() const { return unit_ == nullptr || unit_->quantized_numel == 0; }
  std::int64_t bytes() const {
    return empty() ? 0 : unit_->quantized_numel * static_cast<std::int64_t>(options_.dtype().itemsize());
  }

  void make_room() {
    if (empty() || values_.defined()) return;
    values_ = pool_->take(unit_->quantized_numel, options_);
    gathered_->add(bytes());
  }
  /// Decodes `packed` [packed_bytes] and returns [quantized_numel]; undefined if the unit has no quantised weights.
  at::Tensor fill(const at::Tensor& packed) {
    if (empty()) return {};
    make_room();
    model::decode(*unit_, packed, values_);
    return values_;
  }
  void free() {
    if (!values_.defined()) return;
    free_storage(values_);
    gathered_->add(-bytes());
  }

 private:
  const model::UnitSpec* unit_ = nullptr;
  at::TensorOptions options_;
  BlockPool* pool_ = nullptr;
  Gauge* gathered_ = nullptr;
  at::Tensor values_;
};

}  // namespace qft::parallel
