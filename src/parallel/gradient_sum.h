// Sums of gradients over micro-batches and ranks, where every rank keeps whole gradients. Private to parallel.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/parallel/weight_store.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "owned_params.h"
#include <ATen/core/Tensor.h>

namespace qft::parallel {

/// Units lie in `grads` in the order in which the backward pass completes them.
struct GradientLayout {
  at::Tensor grads;                    ///< [total], gradient dtype: what backward adds to, and at the end the sum
  std::vector<std::int64_t> ends;      ///< per unit
  std::vector<std::size_t> bucket_of;  ///< per unit, rising from 0
  std::vector<Range> in_norm;          ///< what this rank counts of the norm, shared with the ranks that have the same sums
  std::int64_t piece_bytes = 0;        ///< bytes sent in one piece, where nothing else says how many
};

class GradientSum {
 public:
  virtual ~GradientSum() = default;
  virtual void start_step(const MicroRange& micros) = 0;
  /// The i-th unit is complete: for the step, or for a micro-batch (or a round without one) where these are summed one by one.
  virtual void reduce(std::size_t i) = 0;
  virtual void poll() = 0;
  /// `grads` is the sum over all ranks. Collective.
  virtual void finish() = 0;
  /// This rank's part of the square sum of `grads` in `in_norm`.
  virtual double square_sum_part() const = 0;
  /// Bytes held beside `grads`, at most so far.
  virtual std::int64_t bytes() const = 0;
};

/// Buckets are all-reduced while the backward pass goes on.
std::unique_ptr<GradientSum> make_bucketed_sum(GradientLayout layout, comm::Communicator& comm);

/// Summed in the tree of sum_tree.h, the same on any number of ranks: micro-batch by micro-batch, and over ranks at the end.
std::unique_ptr<GradientSum> make_tree_sum(GradientLayout layout, comm::Communicator& comm);

}  // namespace qft::parallel
