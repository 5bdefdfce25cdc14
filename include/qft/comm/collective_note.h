// Which collectives this process started last, for a watchdog that compares them with other ranks'.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace qft::comm {

/// "all_reduce(sum, F32, 1024)"
std::string describe(OpKind kind, DType dtype, std::size_t count, ReduceOp op, int peer);

/// A collective that this process started, for comparison with that of other ranks.
struct CollectiveNote {
  std::uint64_t number = 0;  ///< on its communicator, from 1; 0: none
  std::uint64_t count = 0;   ///< 0 where ranks may differ
  std::array<char, 24> communicator{};
  std::int32_t peer = -1;
  OpKind kind{};
  DType dtype{};
  ReduceOp op{};
};
/// The last ones of this process over all communicators, in no order. Any thread.
using RecentCollectives = std::array<CollectiveNote, 16>;
RecentCollectives recent_collectives();

}  // namespace qft::comm
