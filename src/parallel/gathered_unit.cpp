#include "gathered_unit.h"

#include "qft/core/error.h"

#include <utility>

namespace qft::parallel {

GatheredUnit::GatheredUnit(const model::ModelSpec& spec, const model::UnitSpec& unit, const at::TensorOptions& options,
                           comm::Communicator& shard, const model::RowSharing& tensor, const Residency& residency,
                           Transfers& transfers)
    : unit_(&unit),
      shard_(&shard),
      frozen_(unit.frozen_numel, options, shard, residency, transfers),
      trainable_(unit.trainable_numel, options, shard, residency, transfers),
      packed_(unit.packed_bytes, options.dtype(at::kByte), shard, residency, transfers),
      decoded_(unit, options, transfers.pool, transfers.gathered),
      derived_(spec, unit, options.dtype().toScalarType(), options.device(), tensor) {
  if (frozen_.gathers_parts() || trainable_.gathers_parts()) experts_ = UsedExperts(spec, unit);
}

ShardedBuffer& GatheredUnit::buffer(model::Part part) {
  return part == model::Part::trainable ? trainable_ : part == model::Part::quantized ? packed_ : frozen_;
}

void GatheredUnit::make_room() {
  for (ShardedBuffer* buffer : buffers()) buffer->make_room();
  decoded_.make_room();
}

Ranges GatheredUnit::needed(const ShardedBuffer& buffer, model::Part part, GatherPurpose purpose) const {
  return experts_.needed(part, buffer.division().n, purpose);
}

bool GatheredUnit::gather(GatherPurpose purpose, bool frozen_only) {
  if (!std::exchange(gathers_, true) && purpose == GatherPurpose::forward) experts_.start();
  const bool frozen = frozen_.gather(needed(frozen_, model::Part::frozen, purpose));
  packed_.gather();
  return (frozen_only || trainable_.gather(needed(trainable_, model::Part::trainable, purpose))) && frozen;
}

const model::UnitBuffers& GatheredUnit::acquire(GatherPurpose purpose, std::uint64_t& generations) {
  gather(purpose, /*frozen_only=*/false);
  frozen_.fetch(needed(frozen_, model::Part::frozen, purpose));
  trainable_.fetch(needed(trainable_, model::Part::trainable, purpose));
  const at::Tensor frozen = frozen_.view(), trainable = trainable_.view(), packed = packed_.view();
  if (held_++ > 0) return views_;
  const bool comes = frozen_.frees_whole() || trainable_.frees_whole() || !decoded_.empty();
  views_ = {frozen, trainable, {}, comes ? ++generations : 1, decoded_.fill(packed)};
  derived_.fill(views_);
  return views_;
}

void GatheredUnit::release() {
  QFT_ASSERT(held_ > 0, "{} is released more often than acquired", unit_->name);
  if (--held_ == 0) free();
}

void GatheredUnit::drop() {
  held_ = 0;
  free();
}

void GatheredUnit::gather_experts(std::span<const std::int64_t> begins) {
  if (experts_.empty()) return;
  std::vector<std::uint8_t> mask = experts_.mask(begins);
  if (!experts_.on_demand()) return experts_.record(mask);
  shard_->host().all_reduce(mask.data(), mask.size(), DType::u8, comm::ReduceOp::max);
  experts_.add(mask);
  frozen_.fetch(experts_.of(mask, model::Part::frozen));
  trainable_.fetch(experts_.of(mask, model::Part::trainable));
}

void GatheredUnit::verify_experts(std::span<const std::int64_t> begins) const {
  if (experts_.empty()) return;
  const std::vector<std::uint8_t> mask = experts_.mask(begins);
  require(frozen_.has(experts_.of(mask, model::Part::frozen)) && trainable_.has(experts_.of(mask, model::Part::trainable)),
          "{}: recomputed for its backward pass, a router chose other experts than before, and their weights are not here: its "
          "sums are not reproducible. Set gradient_checkpointing: false to avoid recomputation",
          unit_->name);
}

void GatheredUnit::changed() {
  trainable_.mark_stale();
  derived_.weights_changed();
}

GatheredBytes GatheredUnit::gathered_bytes() const {
  return {frozen_.gathered_bytes() + packed_.gathered_bytes(), trainable_.gathered_bytes(), decoded_.bytes()};
}

std::int64_t GatheredUnit::kept_bytes() const {
  std::int64_t bytes = 0;
  for (const ShardedBuffer* buffer : {&frozen_, &trainable_, &packed_})
    if (buffer->resident().defined()) bytes += static_cast<std::int64_t>(buffer->resident().nbytes());
  return bytes;
}

void GatheredUnit::free() {
  views_ = {};
  gathers_ = false;
  for (ShardedBuffer* buffer : buffers()) buffer->free_whole();
  decoded_.free();
}

}  // namespace qft::parallel
