// A unit's weights in the sharded store: between uses this rank's slices (or everything, in host memory), and the whole unit
// while it is acquired. Private to parallel.
#pragma once

#include "qft/parallel/sharded_buffer.h"
#include "qft/parallel/weight_store.h"

#include <array>
#include <cstdint>
#include <span>

#include "derived_values.h"
#include "used_experts.h"

namespace qft::parallel {

class GatheredUnit {
 public:
  GatheredUnit() = default;
  /// `options`: compute type, and the device that computes. All arguments except `tensor` must outlive this object.
  GatheredUnit(const model::ModelSpec& spec, const model::UnitSpec& unit, const at::TensorOptions& options,
               comm::Communicator& shard, const model::RowSharing& tensor, const Residency& residency, Transfers& transfers);

  ShardedBuffer& buffer(model::Part part);
  ShardedBuffer& trainable() { return trainable_; }
  const ShardedBuffer& trainable() const { return trainable_; }
  std::array<ShardedBuffer*, 3> buffers() { return {&frozen_, &trainable_, &packed_}; }
  UsedExperts& experts() { return experts_; }

  void make_room();
  /// Prefetches the weights for `need`. Returns false if some of them could not start. Collective.
  bool gather(GatherPurpose purpose, bool frozen_only);
  /// As WeightStore::acquire(); `generations` is the store's counter. Collective.
  const model::UnitBuffers& acquire(GatherPurpose purpose, std::uint64_t& generations);
  void release();
  /// Releases the unit no matter how many holders it has.
  void drop();
  /// True if the unit is prefetched, or about to be, and not acquired yet.
  bool is_awaited() const { return gathers_ && held_ == 0; }
  void gather_experts(std::span<const std::int64_t> begins);
  void verify_experts(std::span<const std::int64_t> begins) const;
  /// Call it after the owners have written their slices.
  void changed();

  GatheredBytes gathered_bytes() const;
  /// Returns the bytes kept between uses.
  std::int64_t kept_bytes() const;
  std::int64_t derived_bytes() const { return derived_.bytes(); }

 private:
  Ranges needed(const ShardedBuffer& buffer, model::Part part, GatherPurpose purpose) const;
  void free();

  const model::UnitSpec* unit_ = nullptr;
  comm::Communicator* shard_ = nullptr;
  ShardedBuffer frozen_, trainable_, packed_;
  DecodedBuffer decoded_;
  DerivedValues derived_;
  UsedExperts experts_;
  bool gathers_ = false;  ///< a gather has started since the weights were last freed
  int held_ = 0;
  model::UnitBuffers views_;
};

}  // namespace qft::parallel
