// One call of an operation as the front sees it: for checks, counters, traces and error texts.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace qft::comm {

struct Communicator::Call {
  OpKind kind;
  DType dtype = DType::u8;
  std::size_t count = 0;  ///< elements of the whole buffer
  ReduceOp op = ReduceOp::sum;
  int peer = -1;             ///< root, or the other rank of a message
  std::size_t received = 0;  ///< bytes, as Counters counts them
  std::span<const std::size_t> counts = {};
};

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

/// Notes the operation as the process's last; `number` collectives were started on this communicator.
void note_collective(const std::string& communicator, std::uint64_t number, OpKind kind, DType dtype,
                     std::size_t count, ReduceOp op, int peer);

}  // namespace qft::comm
