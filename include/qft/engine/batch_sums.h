// Sums over the micro-batches of a global batch. All ranks get the same bits, however the batch is divided over them.
#pragma once

#include "qft/parallel/groups.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qft::engine {

/// One row of sums per micro-batch of the global batch.
class BatchSums {
 public:
  /// `micro_batches`: count over all data ranks; `width`: sums per micro-batch.
  BatchSums(std::int64_t micro_batches, std::size_t width);
  /// Sets the sums [width] of micro-batch `index`.
  void set(std::int64_t index, std::span<const double> sums);
  /// Returns the totals [width] over the micro-batches of all data ranks, added in batch order. Collective.
  std::vector<double> all_reduce(const parallel::Groups& groups);

 private:
  std::size_t width_;
  std::vector<double> sums_;  ///< [micro_batches, width]: zero in other ranks' rows, so the all-reduce adds exactly
};

}  // namespace qft::engine
