// Data rate between each pair of ranks. Shows which cable is slow; a collective only shows that one is.
#pragma once

#include "qft/comm/communicator.h"

#include <utility>
#include <vector>

#include <c10/core/Device.h>

namespace qft::comm {

/// Bytes per second from rank `from` to rank `to`.
struct PairRate {
  int from = 0, to = 0;
  double bytes_per_second = 0;
};

/// Returns rounds in which each pair of `ranks` ranks meets once, and no rank meets two others at a time: ranks - 1 rounds, one
/// more if their number is odd. A pair's lower rank comes first.
std::vector<std::vector<std::pair<int, int>>> pair_rounds(int ranks);

/// Measures both directions of every pair, all pairs of a round at once, for about `seconds` per direction, with buffers in
/// `device` memory. All ranks get all rates. Collective.
std::vector<PairRate> measure_pairs(Communicator& comm, c10::Device device, double seconds);

}  // namespace qft::comm
