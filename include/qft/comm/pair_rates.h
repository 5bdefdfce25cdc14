// How fast each pair of ranks exchanges data: one slow cable shows here, where a collective only shows that there is one.
#pragma once

#include "qft/comm/communicator.h"

#include <utility>
#include <vector>

#include <c10/core/Device.h>

namespace qft::comm {

/// Bytes a second from rank `from` to rank `to`.
struct PairRate {
  int from = 0, to = 0;
  double bytes_per_second = 0;
};

/// Rounds in which each of `ranks` ranks meets every other one once, and nobody two at a time: ranks - 1 of them, one more where
/// their number is odd. A pair's lower rank comes first.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks);

/// Measures both directions of every pair, those of a round at once, for about `seconds` a direction, with buffers in `device`
/// memory. All ranks get all rates. Collective.
std::vector<PairRate> measure_pairs(Communicator& comm, c10::Device device, double seconds);

}  // namespace qft::comm
