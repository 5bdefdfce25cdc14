// Where weights and gradients live and how they are gathered and reduced: the interface between the executor and a sharding
// strategy.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/model/row_sharing.h"
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
  std::int64_t gathered_peak = 0;  ///< gathered and decoded weights, at their peak
  std::int64_t grads = 0;          ///< on the device, kept over the step
  std::int64_t grads_peak = 0;     ///< with gradients in flight to their owners, at the peak
  std::int64_t host = 0;           ///< offloaded weights and gradients
};

/// Micro-batches [first, first + count) of the `total` in the global batch, counted rank by rank.
struct MicroRange {
  std::int64_t first = 0, count = 0, total = 0;
};

/// Interface for code that only reads weights (decoding, saving). Call it from one thread, in the same order on every rank.
class WeightReader {
 public:
  virtual ~WeightReader() = default;

  /// Allocates the memory into which the unit will be gathered, if it needs any. Not collective, so a rank with too little memory
  /// can tell the others before they gather. A partially prefetched unit needs at most max_staging_bytes() bytes more.
  virtual void make_room(int unit) = 0;
  /// Returns the unit's weights, whole and readable until the matching release(). Calls may nest. Gathers missing weights:
  /// collective if weights are sharded.
  virtual const model::UnitBuffers& acquire(int unit) = 0;
  /// The last release frees gathered weights. Their storage is emptied, so that using a stale view fails.
  virtual void release(int unit) = 0;

  /// Returns the bytes that gathering each unit allocates.
  virtual std::vector<GatheredBytes> gathered_bytes() const = 0;
  virtual StoreMemory memory() const = 0;
};

/// What the executor needs in addition. All calls come from its thread, in action-list order, the same on every rank.
class WeightStore : public WeightReader {
 public:
  /// Prefetches the unit's weights, unless they are gathered or in flight. Collective if weights are sharded.
  virtual void gather(int unit, GatherPurpose purpose, bool frozen_only = false) = 0;
  using WeightReader::acquire;
  /// As acquire(unit), but experts without rows in the passes of `need` may be missing.
  virtual const model::UnitBuffers& acquire(int unit, GatherPurpose purpose) = 0;
  /// Makes the experts with rows readable: those with different begins in ops::ExpertRows::begins. Each forward pass of a layer
  /// with experts calls it before it reads their weights, while the unit is acquired. Empty `begins`: a pass that only other
  /// ranks have. Collective if weights are sharded.
  virtual void gather_experts(int unit, std::span<const std::int64_t> begins) = 0;
  /// As gather_experts(), for a recomputed forward pass. Throws Error if it uses experts that are not here, that is, others than
  /// the first time. Not collective.
  virtual void verify_experts(int unit, std::span<const std::int64_t> begins) = 0;

  /// Clears the gradients before a step. `micros`: this rank's micro-batches; used by ReductionOrder::by_micro_batch.
  virtual void start_step(const MicroRange& micros) = 0;
  /// Returns the buffer [trainable_numel], in gradient dtype, in which the unit's gradients accumulate until reduce(). Undefined
  /// if nothing in the unit trains.
  virtual at::Tensor grads(int unit) = 0;
  /// Starts summing the unit's gradients, which are complete on this rank, over the ranks, in fp32 or wider. Collective.
  virtual void reduce(int unit) = 0;
  /// Makes progress on transfers in flight; never blocks.
  virtual void poll() = 0;
  /// Waits for every reduction of the step, then adds up the terms of ranks that share matrices. Collective.
  virtual void finish_reductions() = 0;
  /// Ends a step early, between two groups, instead of finish_reductions(). Waits for transfers in flight and releases
  /// everything. The gradients are invalid until the next start_step(). Collective.
  virtual void abandon_step() = 0;

  /// Returns this rank's part of the square sum of each unit's reduced gradients. The parts of all ranks add up to the unit's
  /// sum, in which each parameter counts once (ParamSpec::first_holder).
  virtual std::vector<double> local_grad_square_sums() const = 0;
  /// Returns the parameters that this rank's optimizer updates, one entry per unit with trainable parameters.
  virtual std::vector<optim::FlatParams> owned() const = 0;
  /// Copies the parameters in owned(), which the optimizer has updated, to the other ranks that hold them. Collective.
  virtual void broadcast_updates() = 0;
  /// Orders work queued from now on behind the transfers in flight. Call it before code other than the executor and the optimizer
  /// reads or writes weights. Sends nothing, but all ranks must call it at the same point, because it determines which weights
  /// are gathered next.
  virtual void settle() = 0;

  /// Returns this rank's part of a unit as kept between uses: the whole part if it is replicated. Quantised weights are bytes.
  virtual model::Shard resident_shard(int unit, model::Part part) = 0;
};

/// Maximum number of unit gradients in flight to their owners. Without a limit they would pile up if the network is slower than
/// the computation.
inline constexpr std::size_t kMaxReductionsInFlight = 2;

/// Returns the bucket of each unit; -1 if nothing in it trains. Buckets fill from the last unit on, in the order of the backward
/// pass.
std::vector<int> gradient_buckets(const model::ModelSpec& spec, at::ScalarType grad, std::int64_t bucket_bytes = kBucketBytes);

/// Returns the upper bound in bytes of the staging buffers for partial gathers (ShardedBuffer::gather(parts)): all non-expert
/// weights of the largest layer with unquantised experts, plus half its experts.
std::int64_t max_staging_bytes(const model::ModelSpec& spec, at::ScalarType compute);

/// Makes the store that keeps everything on every rank (plain data parallelism, or one rank). Gradients lie in one buffer, last
/// unit first, so buckets of `bucket_bytes` fill in the order of the backward pass and are all-reduced while it continues. `comm`
/// must outlive the store. `tensor`: the ranks that share matrices, each with its own store. Without `training` there are
/// no gradients.
std::unique_ptr<WeightStore> make_replicated_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                   c10::Device device, comm::Communicator& comm, bool training,
                                                   ReductionOrder reduction_order = ReductionOrder::as_ready,
                                                   std::int64_t bucket_bytes = kBucketBytes,
                                                   const model::RowSharing& tensor = {});

/// Makes the store for every other strategy. Each rank of `shard` owns an equal flat range of every unit's buffers, the last ones
/// padded; `strategy` says which other parts it keeps. The ranks of `replicate` own the same ranges and sum their gradients once
/// per step. State named by `offload` lives in host memory, also if the device is the host; then it is really copied. Both
/// communicators must outlive the store.
std::unique_ptr<WeightStore> make_sharded_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                c10::Device device, const Strategy& strategy, const Offload& offload,
                                                comm::Communicator& shard, comm::Communicator& replicate, bool training,
                                                const model::RowSharing& tensor = {});

}  // namespace qft::parallel
