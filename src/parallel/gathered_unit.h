// A unit's weights in the sharded store: this rank's slices, or all in host memory, between uses, and the whole while it is
// acquired. Private to parallel.
#pragma once

#include "qft/parallel/sharded_buffer.h"
#include "qft/parallel/weight_store.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "decoded_buffer.h"
#include "derived_values.h"
#include "used_experts.h"

namespace qft::parallel {

class GatheredUnit {
 public:
  GatheredUnit() = default;
  /// `options`: compute type, and the device that computes. All must outlive it.
  GatheredUnit(const model::ModelSpec& spec, const model::UnitSpec& unit, const at::TensorOptions& options,
               comm::Communicator& shard, const Residency& residency, Transfers& transfers);

  ShardedBuffer& buffer(model::Part part);
  ShardedBuffer& trainable() { return trainable_; }
  const ShardedBuffer& trainable() const { return trainable_; }
  std::array<ShardedBuffer*, 3> buffers() { return {&frozen_, &trainable_, &packed_}; }
  UsedExperts& experts() { return experts_; }

  void make_room();
  /// Prefetches what `need` says; whether all of it is on its way. Collective.
  bool gather(Need need, bool frozen_only);
  /// As WeightStore's; `generations` counts those of the store. Collective.
  const model::UnitBuffers& acquire(Need need, std::uint64_t& generations);
  void release();
  /// Releases it whoever holds it.
  void drop();
  /// Whether it is prefetched, or to be, and nobody has acquired it yet.
  bool is_awaited() const { return gathers_ && held_ == 0; }
  void need_experts(std::span<const std::int64_t> begins);
  void need_experts_again(std::span<const std::int64_t> begins) const;
  /// The owners have written their slices.
  void changed();

  GatheredBytes gathered_bytes() const;
  /// Of what is kept between uses.
  std::int64_t kept_bytes() const;
  std::int64_t derived_bytes() const { return derived_.bytes(); }

 private:
  Ranges needed(const ShardedBuffer& buffer, model::Part part, Need need) const;
  void free();

  const model::UnitSpec* unit_ = nullptr;
  comm::Communicator* shard_ = nullptr;
  ShardedBuffer frozen_, trainable_, packed_;
  DecodedBuffer decoded_;
  DerivedValues derived_;
  UsedExperts experts_;
  bool gathers_ = false;  ///< since its weights were freed the last time
  int held_ = 0;
  model::UnitBuffers views_;
};

}  // namespace qft::parallel
