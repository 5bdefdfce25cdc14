// Sums of gradients over micro-batches and ranks, for stores in which every rank keeps whole gradients. Private to parallel.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/parallel/ranges.h"
#include "qft/parallel/weight_store.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Units lie in `grads` in the order in which the backward pass completes them.
struct GradientLayout {
  at::Tensor grads;                    ///< [total], gradient dtype: backward adds to it; holds the sum at the end
  std::vector<std::int64_t> ends;      ///< end of each unit
  std::vector<std::size_t> bucket_of;  ///< bucket of each unit, ascending from 0
  std::int64_t piece_bytes = 0;        ///< bytes per transfer, unless buckets determine it
};

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  virtual void start_step(const MicroRange& micros) = 0;
  /// Call it when the i-th unit is complete: for the step, or, if micro-batches are summed one by one, for each micro-batch and
  /// for each round without one.
  virtual void reduce(std::size_t i) = 0;
  virtual void poll() = 0;
  /// Makes `grads` the sum over all ranks. Collective.
  virtual void finish() = 0;
  /// Returns the part of a unit's `n` summed gradients that this rank counts in the norm: the ranks' parts divide them.
  virtual Range counted_part(std::int64_t n) const = 0;
  /// Returns the peak of the bytes held in addition to `grads`.
  virtual std::int64_t bytes() const = 0;
};

/// All-reduces buckets during the backward pass.
std::unique_ptr<GradientSum> make_bucketed_sum(GradientLayout layout, comm::Communicator& comm);

/// Sums in the tree of sum_tree.h, with the same bits on any number of ranks: micro-batch by micro-batch, and over ranks at the
/// end.
std::unique_ptr<GradientSum> make_tree_sum(GradientLayout layout, comm::Communicator& comm);

}  // namespace qft::parallel
