// Where weights and gradients live and how they come together: the seam between the executor and a sharding strategy.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/model/spec.h"
#include "qft/model/weights.h"
#include "qft/optim/optimizer.h"
#include "qft/optim/precision.h"
#include "qft/parallel/action.h"
#include "qft/parallel/strategy.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Bytes on this rank.
struct StoreMemory {
  std::int64_t weights = 0;        ///< on the device, kept between uses
  std::int64_t gathered = 0;       ///< gathered and decoded weights, now
  std::int64_t gathered_peak = 0;  ///< the same, at its peak
  std::int64_t grads = 0;          ///< kept over the step on the device
  std::int64_t grads_peak = 0;     ///< with gradients in flight to their owners, at the peak
  std::int64_t host = 0;           ///< offloaded weights and gradients
};

/// Micro-batches [first, first + count) of the `total` of the global batch, counted rank by rank.
struct MicroRange {
  std::int64_t first = 0, count = 0, total = 0;
};

/// For those who only read weights (decoding, saving). Calls come from one thread, in the same order on every rank.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  /// Allocates the memory into which the unit will be gathered, if it needs any. Not collective: if one rank has too
  /// little, it can tell the others before they gather. What a unit of which parts are prefetched needs besides is
  /// staging_limit() at most.
  virtual void make_room(int unit) = 0;
  /// The unit's weights, whole and readable until the matching release(). May be nested. Gathers what is missing: collective
  /// where weights are sharded.
  virtual const model::UnitBuffers& acquire(int unit) = 0;
  /// The last release frees gathered weights: their storage is emptied, so that a stale view fails.
  virtual void release(int unit) = 0;

  /// The bytes that gathering each unit allocates.
  virtual std::vector<GatheredBytes> gathered_bytes() const = 0;
  virtual StoreMemory memory() const = 0;
};

/// What the executor needs in addition. All calls come from its thread, in action-list order, the same on every rank.
class WeightStore : public WeightReader {
 public:
  /// Prefetches the unit's weights, unless they are gathered or in flight. Collective where weights are sharded.
  virtual void gather(int unit, Need need, bool frozen_only = false) = 0;
  using WeightReader::acquire;
  /// As acquire(unit), of which experts may be missing that the passes it is for have no rows for.
  virtual const model::UnitBuffers& acquire(int unit, Need need) = 0;
  /// Called in each forward pass of a layer with experts before it reads their weights, while the unit is acquired: those whose
  /// rows begin and end apart (ops::ExpertRows::begins) are here afterwards. Without rows: for a pass that only other ranks have.
  /// Collective where weights are sharded.
  virtual void need_experts(int unit, std::span<const std::int64_t> begins) = 0;
  /// The same where a forward pass is computed again. Throws Error where it uses others than the first time. Not collective.
  virtual void need_experts_again(int unit, std::span<const std::int64_t> begins) = 0;

  /// Clears the gradients before a step. `micros`: those of this rank; matters in ReductionOrder::by_micro_batch.
  virtual void start_step(const MicroRange& micros) = 0;
  /// Where the unit's gradients [trainable_numel] are accumulated, in gradient dtype, until reduce(). Undefined where nothing
  /// trains.
  virtual at::Tensor grads(int unit) = 0;
  /// The unit's gradients are complete on this rank: starts adding them up over the ranks, in fp32 or wider. Collective.
  virtual void reduce(int unit) = 0;
  /// Drives transfers in flight; never blocks.
  virtual void poll() = 0;
  /// Waits for every reduction of the step. Collective.
  virtual void finish_reductions() = 0;
  /// Ends a step early, between two groups, instead of finish_reductions(): waits for what is in flight and releases
  /// everything. The gradients are invalid until the next start_step(). Collective.
  virtual void abandon_step() = 0;

  /// Sum of squares of the reduced gradients, this rank's part: the parts of all ranks add up to the whole, with each parameter
  /// counted once (ParamSpec::first_holder).
  virtual double local_grad_square_sum() const = 0;
  /// What this rank's optimizer updates, one entry a unit with trainable parameters.
  virtual std::vector<optim::FlatParams> owned() const = 0;
  /// The optimizer has changed what owned() names: copies it to the ranks that hold it too. Collective.
  virtual void publish() = 0;
  /// What is queued from now on is ordered behind the transfers in flight: call it before weights are read or written by other
  /// than the executor and the optimizer. Sends nothing, but all ranks call it at the same point: what is gathered next
  /// depends on it.
  virtual void settle() = 0;

  /// What this rank holds of a part of a unit between uses: the whole where it is replicated. Quantised weights are bytes.
  virtual model::Shard resident_shard(int unit, model::Part part) = 0;
};

/// The most unit gradients in flight to their owners: more would pile up where the wire is slower than the compute.
inline constexpr std::size_t kReductionsInFlight = 2;

/// Gradients of the replicated store are all-reduced in buckets of about so many bytes.
inline constexpr std::int64_t kBucketBytes = 25 << 20;

/// Per unit its bucket, -1 where nothing trains: filled last unit first, in the order of the backward pass.
std::vector<int> gradient_buckets(const model::ModelSpec& spec, at::ScalarType grad, std::int64_t bucket_bytes = kBucketBytes);

/// How gradients are summed. as_ready: while the backward pass goes on, in an order that depends on the ranks.
/// by_micro_batch: each micro-batch ends with its reduce(), and the sum is that of a binary tree over all of them,
/// whose bits do not depend on the number of ranks; up to 2 log2(micro-batches of a rank) partial sums are kept.
enum class ReductionOrder : std::uint8_t { as_ready, by_micro_batch };

/// Bytes by way of which parts of units travel that are gathered ahead, at most (ShardedBuffer::gather(parts)): what is no
/// expert's of the largest layer with experts that cross by themselves, and half of these.
std::int64_t staging_limit(const model::ModelSpec& spec, at::ScalarType compute);

/// Everything on every rank (plain data parallelism, or one rank). Gradients lie in one buffer, last unit first, so that
/// buckets of `bucket_bytes` fill in the order of the backward pass and are all-reduced while it goes on.
/// `comm` must outlive the store. Without `training` there are no gradients.
std::unique_ptr<WeightStore> make_replicated_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                   c10::Device device, comm::Communicator& comm, bool training,
                                                   ReductionOrder reduction_order = ReductionOrder::as_ready,
                                                   std::int64_t bucket_bytes = kBucketBytes);

/// Every other strategy: each rank of `shard` owns an equal flat range of every unit's buffers, the last ones padded;
/// `strategy` says what exists of the rest. The ranks of `replicate` own the same ranges and add up their gradients
/// once a step. What `offload` names lives in host memory, also where the device is the host: then a copy is a copy.
/// Both communicators must outlive the store.
std::unique_ptr<WeightStore> make_sharded_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                c10::Device device, const Strategy& strategy, const Offload& offload,
                                                comm::Communicator& shard, comm::Communicator& replicate, bool training);

}  // namespace qft::parallel
