#include "qft/comm/communicator.h"
#include "qft/core/activity.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "call.h"
#include <fmt/format.h>

namespace qft::comm {

namespace {

// Kept unformatted: operations are noted often, and only a watchdog reads the notes.
struct Note {
  std::uint64_t number = 0;
  std::array<char, 48> communicator{};
  OpKind kind{};
  DType dtype{};
  std::size_t count = 0;
  ReduceOp op{};
  int peer = -1;
};

std::mutex note_mutex;
Note latest;
RecentCollectives recent;
std::size_t next_recent = 0;

constexpr std::array<std::string_view, kOpKinds> kKindNames = {"barrier",    "broadcast",  "all_reduce", "reduce_scatter",
                                                               "all_gather", "all_to_all", "send",       "recv"};
constexpr std::array<std::string_view, 4> kReduceNames = {"sum", "prod", "max", "min"};

}  // namespace

std::string_view name_of(OpKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}
std::string_view name_of(ReduceOp op) {
  return kReduceNames[static_cast<std::size_t>(op)];
}

std::string describe(OpKind kind, DType dtype, std::size_t count, ReduceOp op, int peer) {
  const auto type = safetensors_name(dtype);
  switch (kind) {
    case OpKind::barrier:
      return "barrier()";
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
      return fmt::format("{}({}, {}, {})", name_of(kind), name_of(op), type, count);
    case OpKind::broadcast:
      return fmt::format("broadcast({}, {}, root {})", type, count, peer);
    case OpKind::send:
      return fmt::format("send({}, {}, to {})", type, count, peer);
    case OpKind::recv:
      return fmt::format("recv({}, {}, from {})", type, count, peer);
    default:
      return fmt::format("{}({}, {})", name_of(kind), type, count);
  }
}

void note_collective(const std::string& communicator, std::uint64_t number, OpKind kind, DType dtype, std::size_t count,
                     ReduceOp op, int peer) {
  activity::tick();
  const std::lock_guard lock(note_mutex);
  latest.number = number;
  const auto length = std::min(communicator.size(), latest.communicator.size() - 1);
  std::memcpy(latest.communicator.data(), communicator.data(), length);
  latest.communicator[length] = '\0';
  latest.kind = kind;
  latest.dtype = dtype;
  latest.count = count;
  latest.op = op;
  latest.peer = peer;
  if (kind == OpKind::send || kind == OpKind::recv) return;
  CollectiveNote& entry = recent[next_recent++ % recent.size()];
  entry = {number, kind == OpKind::all_to_all ? 0 : count, {}, peer, kind, dtype, op};
  std::memcpy(entry.communicator.data(), communicator.data(), std::min(communicator.size(), entry.communicator.size() - 1));
}

CollectiveNote last_note() {
  const std::lock_guard lock(note_mutex);
  CollectiveNote note{latest.number, latest.count, {}, latest.peer, latest.kind, latest.dtype, latest.op};
  std::copy_n(latest.communicator.begin(), note.communicator.size() - 1, note.communicator.begin());
  return note;
}

RecentCollectives recent_collectives() {
  const std::lock_guard lock(note_mutex);
  return recent;
}

LastCollective last_collective() {
  Note note;
  {
    const std::lock_guard lock(note_mutex);
    note = latest;
  }
  if (note.number == 0) return {};
  return {note.number, note.communicator.data(), describe(note.kind, note.dtype, note.count, note.op, note.peer)};
}

std::uint64_t Counters::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto value : bytes) total += value;
  return total;
}

}  // namespace qft::comm
