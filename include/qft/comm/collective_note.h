// The collectives that this process started last, for a watchdog that compares them between ranks.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qft::comm {

/// "all_reduce(sum, F32, 1024)"
std::string describe(OpKind kind, DType dtype, std::size_t count, ReduceOp op, int peer);

/// A collective that this process started, in a form that ranks can compare.
struct CollectiveNote {
  std::uint64_t number = 0;  ///< index on its communicator, from 1; 0: none
  std::uint64_t count = 0;   ///< 0 for calls in which the count may differ between ranks
  std::array<char, 24> communicator{};
  std::int32_t peer = -1;
  OpKind kind{};
  DType dtype{};
  ReduceOp op{};
};
/// The last collectives of this process over all communicators, unordered. Thread-safe.
using RecentCollectives = std::array<CollectiveNote, 16>;
RecentCollectives recent_collectives();

}  // namespace qft::comm
