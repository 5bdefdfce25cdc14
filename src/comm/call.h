// One call of an operation, as checks, counters, traces and error texts see it.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/comm/device_collectives.h"

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

/// Records the operation as the process's last; `number` collectives were started on this communicator.
void note_collective(const std::string& communicator, std::uint64_t number, OpKind kind, DType dtype, std::size_t count,
                     ReduceOp op, int peer);
/// Returns the note of this thread's latest note_collective().
CollectiveNote last_note();

}  // namespace qft::comm
