// Sums over the micro-batches of a global batch that all ranks agree on, to the bit, however the batch is divided.
#pragma once

#include "qft/comm/communicator.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qft::engine {

class BatchSums {
 public:
  /// `micro_batches`: of all ranks; `width`: sums of each.
  BatchSums(std::int64_t micro_batches, std::size_t width);
  /// Those of micro-batch `index` [width].
  void set(std::int64_t index, std::span<const double> sums);
  /// Of all micro-batches of all ranks, in their order [width]. Collective.
  std::vector<double> agree(comm::Communicator& comm);

 private:
  std::size_t width_;
  std::vector<double> sums_;  ///< each micro-batch has a place of its own: zeros of others change nothing
};

/// The mean of the steps' mean rewards: what BCO compares rewards with. As TRL's RunningMoments, with one update a step.
struct RunningReward {
  double mean = 0.0;
  std::int64_t steps = 0;

  RunningReward with(double reward) const { return {mean + (reward - mean) / static_cast<double>(steps + 1), steps + 1}; }
  bool operator==(const RunningReward&) const = default;
};

}  // namespace qft::engine
