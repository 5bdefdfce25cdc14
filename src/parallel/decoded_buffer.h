// The decoded copy of a unit's quantised weights; exists while the unit is acquired. Private to parallel.
#pragma once

#include "qft/model/weights.h"
#include "qft/parallel/sharded_buffer.h"

#include <cstdint>

namespace qft::parallel {

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
