// Where weights and gradients live and how they come together: the seam between the executor and a sharding strategy.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "qft/comm/communicator.h"
#include "qft/model/spec.h"
#include "qft/optim/adamw.h"
#include "qft/optim/precision.h"

namespace qft::parallel {

/// The flat 1-D buffers of one unit as the compute sees them; undefined where the unit has no such parameter.
struct UnitBuffers {
  at::Tensor frozen;     ///< [frozen_numel], compute dtype
  at::Tensor trainable;  ///< [trainable_numel], compute dtype
  at::Tensor grad;       ///< [trainable_numel], gradient dtype; accumulated into
};

/// All calls come from the executor's thread, in action-list order, alike on every rank.
class WeightStore {
 public:
  virtual ~WeightStore() = default;

  /// A hint that acquire(unit) follows soon: begins what it would wait for.
  virtual void prefetch(int unit) = 0;
  /// The unit's buffers, whole and readable until the matching release(). May be nested.
  virtual const UnitBuffers& acquire(int unit) = 0;
  virtual void release(int unit) = 0;

  /// Clears the gradients before a step.
  virtual void zero_grads() = 0;
  /// The unit's gradients are complete on this rank: starts adding them up over the ranks, in fp32 or wider. Collective.
  virtual void reduce(int unit) = 0;
  /// Drives reductions in flight; never blocks.
  virtual void poll() = 0;
  /// Waits for every reduction of the step.
  virtual void finish_reductions() = 0;

  /// Sum of squares of the reduced gradients, this rank's part: the parts of all ranks add up to the whole.
  virtual double local_grad_square_sum() const = 0;
  /// What this rank's optimizer updates, one entry a unit with trainable parameters.
  virtual std::vector<optim::FlatParams> owned() const = 0;

  virtual std::int64_t weight_bytes() const = 0;
  virtual std::int64_t grad_bytes() const = 0;
};

/// Everything on every rank (plain data parallelism, or one rank). Gradients lie in one buffer, last unit first, so that
/// buckets of `bucket_bytes` fill in the order of the backward pass and are all-reduced while it goes on.
/// `comm` must outlive the store. Without `training` there are no gradients.
std::unique_ptr<WeightStore> make_replicated_store(const model::ModelSpec& spec, const optim::Precision& precision,
                                                   c10::Device device, comm::Communicator& comm, bool training,
                                                   std::int64_t bucket_bytes = 25 << 20);

}  // namespace qft::parallel
