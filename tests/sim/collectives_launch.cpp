#include "collectives_launch.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim.h"

namespace qft::sim::collectives {
namespace {

std::uint64_t chunks_of(std::size_t bytes) {
  return (bytes + kChunk - 1) / kChunk;
}

std::byte* at(const void* data, std::size_t offset) {
  return static_cast<std::byte*>(writable(data)) + offset;
}

/// Returns the bytes that each rank contributes to a collective.
std::size_t given_bytes(const Call& call, int ranks) {
  return bytes_of(call) * (call.kind == Kind::reduce_scatter ? static_cast<std::size_t>(ranks) : 1);
}

std::size_t chunk_bytes(std::size_t all, std::uint64_t chunk) {
  return std::min(kChunk, all - chunk * kChunk);
}

}  // namespace

Launch::Launch(std::vector<Operation> operations) : first_(operations.front().call), operations_(operations.size()) {
  for (Operation& operation : operations) {
    const Call& call = operation.call;
    if (!is_message(call)) {
      collectives_.push_back(operation);
      continue;
    }
    const bool sends = call.kind == Kind::send;
    auto lane = std::find_if(lanes_.begin(), lanes_.end(),
                             [&](const Lane& l) { return l.entry.sends == sends && l.entry.peer == call.other; });
    if (lane == lanes_.end()) {
      lanes_.emplace_back();
      lane = std::prev(lanes_.end());
      lane->entry.sends = sends;
      lane->entry.peer = call.other;
    }
    lane->messages.push_back(operation);
  }
}

void Launch::begin(Shared& shared) {
  begun_ = true;
  const int rank = shared.rank();
  Seat& seat = shared.seat(rank);
  ++seat.begun;
  seat.last = first_;
  for (int r = 0; r < shared.size(); ++r) {
    if (r == rank) continue;
    shared.sender(rank, r).planned += collectives_.size();
    shared.receiver(r, rank).planned += collectives_.size();
  }
  for (const Lane& lane : lanes_) {
    End& end = lane.entry.sends ? shared.sender(rank, lane.entry.peer) : shared.receiver(lane.entry.peer, rank);
    end.planned += lane.messages.size();
  }
  ++seat.begun;
}

void Launch::reset() {
  begun_ = false;
  now_ = 0;
  entries_.clear();
  for (Lane& lane : lanes_) {
    lane.entry = {.sends = lane.entry.sends, .peer = lane.entry.peer};
    lane.now = 0;
    lane.moved = 0;
  }
}

bool Launch::advance(Shared& shared, bool& moved) {
  for (; now_ < collectives_.size(); ++now_) {
    if (!advance_collective(shared, collectives_[now_], moved)) return false;
    entries_.clear();
    moved = true;
  }
  bool done = true;
  for (Lane& lane : lanes_) done = advance(shared, lane, moved) && done;
  return done;
}

std::vector<int> Launch::peers(const Shared& shared) const {
  std::vector<int> peers;
  if (collectives_.empty()) {
    for (const Lane& lane : lanes_) peers.push_back(lane.entry.peer);
  } else {
    for (int r = 0; r < shared.size(); ++r) peers.push_back(r);
  }
  std::erase(peers, shared.rank());
  return peers;
}

std::string Launch::text() const {
  return operations_ == 1 ? describe(first_) : c10::str(describe(first_), " and ", operations_ - 1, " more");
}

// A call stays posted until the other end has read it; only then may the next one be posted.
bool Launch::meet(Shared& shared, Entry& entry, const Call& call, bool& moved) {
  if (entry.met) return true;
  const int rank = shared.rank();
  const int from = entry.sends ? rank : entry.peer;
  const int to = entry.sends ? entry.peer : rank;
  End& mine = entry.sends ? shared.sender(from, to) : shared.receiver(from, to);
  const End& theirs = entry.sends ? shared.receiver(from, to) : shared.sender(from, to);
  if (entry.number == 0) {
    mine.call = call;
    entry.number = ++mine.posted;
    moved = true;
  }
  if (!entry.checked) {
    if (theirs.posted < entry.number) return false;
    const Call& other = theirs.call;
    TORCH_CHECK(entry.sends ? fit(call, other) : fit(other, call), "the ranks' calls do not match: rank ", rank, " calls ",
                describe(call), " where rank ", entry.peer, " calls ", describe(other), " (the ", entry.number,
                ". time that these two meet)");
    mine.checked = entry.number;
    entry.checked = true;
    moved = true;
  }
  entry.met = theirs.checked >= entry.number;
  return entry.met;
}

bool Launch::send_chunks(Shared& shared, Lane& lane, bool& moved) {
  const Operation& message = lane.messages[lane.now];
  const std::size_t bytes = bytes_of(message.call);
  Box& box = shared.box(shared.rank(), lane.entry.peer);
  const auto& read = box.read[static_cast<std::size_t>(lane.entry.peer)];
  for (; lane.moved < chunks_of(bytes) && box.written - read < 2; ++lane.moved) {
    std::memcpy(box.slots[box.written % 2].data(), at(message.send, lane.moved * kChunk), chunk_bytes(bytes, lane.moved));
    ++box.written;
    moved = true;
  }
  // A send ends when all bytes have been taken; NCCL promises no more.
  return lane.moved == chunks_of(bytes) && read == box.written;
}

bool Launch::take_chunks(Shared& shared, Lane& lane, bool& moved) {
  const Operation& message = lane.messages[lane.now];
  const std::size_t bytes = bytes_of(message.call);
  Box& box = shared.box(lane.entry.peer, shared.rank());
  auto& read = box.read[static_cast<std::size_t>(shared.rank())];
  for (; lane.moved < chunks_of(bytes) && read < box.written; ++lane.moved) {
    std::memcpy(at(message.recv, lane.moved * kChunk), box.slots[read % 2].data(), chunk_bytes(bytes, lane.moved));
    ++read;
    moved = true;
  }
  return lane.moved == chunks_of(bytes);
}

bool Launch::advance(Shared& shared, Lane& lane, bool& moved) {
  for (; lane.now < lane.messages.size(); ++lane.now) {
    if (!meet(shared, lane.entry, lane.messages[lane.now].call, moved)) return false;
    if (!(lane.entry.sends ? send_chunks(shared, lane, moved) : take_chunks(shared, lane, moved))) return false;
    lane.entry = {.sends = lane.entry.sends, .peer = lane.entry.peer};
    lane.moved = 0;
    moved = true;
  }
  return true;
}

bool Launch::advance_collective(Shared& shared, const Operation& operation, bool& moved) {
  const int ranks = shared.size();
  const Box& own = shared.box(shared.rank());
  if (entries_.empty()) {
    for (int r = 0; r < ranks; ++r)
      for (const bool sends : {true, false})
        if (r != shared.rank()) entries_.push_back({.sends = sends, .peer = r});
    base_ = own.written;  // equal on all ranks
    given_ = taken_ = 0;
  }
  bool met = true;
  for (Entry& entry : entries_) met = meet(shared, entry, operation.call, moved) && met;
  if (!met) return false;
  const std::uint64_t chunks = chunks_of(given_bytes(operation.call, ranks));
  const auto all = [&](const auto& of) {
    for (int r = 0; r < ranks; ++r)
      if (!of(r)) return false;
    return true;
  };
  while (taken_ < chunks) {
    const bool room = given_ < chunks && all([&](int r) { return own.written - own.read[static_cast<std::size_t>(r)] < 2; });
    const bool there = all([&](int r) { return shared.box(r).written > base_ + taken_; });
    if (!room && !there) return false;
    if (room) give(shared, operation);
    if (there) take(shared, operation);
    moved = true;
  }
  return true;
}

void Launch::give(Shared& shared, const Operation& operation) {
  const Call& call = operation.call;
  Box& box = shared.box(shared.rank());
  const std::size_t bytes = given_bytes(call, shared.size());
  if (call.kind != Kind::broadcast || call.other == shared.rank())
    std::memcpy(box.slots[box.written % 2].data(), at(operation.send, given_ * kChunk), chunk_bytes(bytes, given_));
  ++given_;
  ++box.written;
}

void Launch::take(Shared& shared, const Operation& operation) {
  const Call& call = operation.call;
  const auto rank = static_cast<std::size_t>(shared.rank());
  const auto ranks = static_cast<std::size_t>(shared.size());
  const std::size_t bytes = given_bytes(call, shared.size());
  const std::size_t slot = (base_ + taken_) % 2;
  std::size_t begin = taken_ * kChunk;
  std::size_t end = begin + chunk_bytes(bytes, taken_);
  const auto given = [&](std::size_t r) -> std::byte* { return shared.box(static_cast<int>(r)).slots[slot].data(); };
  if (call.kind == Kind::broadcast) {
    std::memcpy(at(operation.recv, begin), given(static_cast<std::size_t>(call.other)), end - begin);
  } else if (call.kind == Kind::all_gather) {
    for (std::size_t r = 0; r < ranks; ++r) std::memcpy(at(operation.recv, r * bytes + begin), given(r), end - begin);
  } else if (call.kind != Kind::reduce || call.other == shared.rank()) {
    // For a reduce_scatter: this rank's slice.
    const std::size_t slice = call.kind == Kind::reduce_scatter ? rank * bytes_of(call) : 0;
    const std::size_t skipped = std::max(begin, slice) - begin;
    begin += skipped;
    end = std::min(end, slice + bytes_of(call));
    Parts parts{};
    for (std::size_t r = 0; r < ranks; ++r) parts[r] = given(r) + skipped;
    if (begin < end)
      reduce_in_order(at(operation.recv, begin - slice), parts, ranks, (end - begin) / width_of(call.dtype), call.dtype, call.op);
  }
  ++taken_;
  for (std::size_t r = 0; r < ranks; ++r) shared.box(static_cast<int>(r)).read[rank] = base_ + taken_;
}

}  // namespace qft::sim::collectives
