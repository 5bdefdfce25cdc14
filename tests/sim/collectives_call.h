// One call of an operation: the part that ranks compare, and its name in messages.
#pragma once

#include "qft/comm/communicator.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <c10/util/Exception.h>

namespace qft::sim::collectives {

inline constexpr int kMostRanks = 64;

enum class Kind : std::uint8_t { broadcast, all_reduce, reduce, reduce_scatter, all_gather, send, recv };

struct Call {
  Kind kind = Kind::broadcast;
  DType dtype = DType::u8;  ///< u8 for operations that only move bytes
  comm::ReduceOp op = comm::ReduceOp::sum;
  std::int32_t other = -1;  ///< root or peer; -1: none
  std::uint64_t count = 0;

  bool operator==(const Call&) const = default;
};

inline constexpr std::size_t width_of(DType dtype) {
  constexpr std::size_t kWidths[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};  // in DType's order
  return kWidths[static_cast<std::size_t>(dtype)];
}
inline std::size_t bytes_of(const Call& call) {
  return call.count * width_of(call.dtype);
}

inline bool is_message(const Call& call) {
  return call.kind == Kind::send || call.kind == Kind::recv;
}
inline bool reduces(const Call& call) {
  return call.kind == Kind::all_reduce || call.kind == Kind::reduce || call.kind == Kind::reduce_scatter;
}

/// Returns "all_reduce(sum, F32, 1024)", "broadcast(16 bytes, root 1)" or "send(16 bytes, rank 1)".
inline std::string describe(const Call& call) {
  static constexpr const char* kKinds[] = {"broadcast", "all_reduce", "reduce", "reduce_scatter", "all_gather", "send", "recv"};
  static constexpr const char* kTypes[] = {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"};
  static constexpr const char* kOps[] = {"sum", "prod", "max", "min"};
  std::string text = c10::str(kKinds[static_cast<std::size_t>(call.kind)], "(");
  if (reduces(call)) {
    text +=
        c10::str(kOps[static_cast<std::size_t>(call.op)], ", ", kTypes[static_cast<std::size_t>(call.dtype)], ", ", call.count);
  } else {
    text += c10::str(call.count, " bytes");
  }
  if (call.other >= 0) text += c10::str(is_message(call) ? ", rank " : ", root ", call.other);
  return text + ")";
}

/// True if `sender`'s call matches `receiver`'s call.
inline bool fit(const Call& sender, const Call& receiver) {
  if (!is_message(sender) || !is_message(receiver)) return sender == receiver;
  return sender.kind == Kind::send && receiver.kind == Kind::recv && sender.count == receiver.count;
}

using Parts = std::array<const void*, kMostRanks>;

/// Reduces `parts` in their order into `out`: narrow float types are summed in fp32 and rounded once.
void reduce_in_order(void* out, const Parts& parts, std::size_t ranks, std::size_t count, DType dtype, comm::ReduceOp op);

}  // namespace qft::sim::collectives
