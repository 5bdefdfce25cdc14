// What one outermost group_end() starts on a group: collectives one after the other, and messages all at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives_shared.h"

namespace qft::sim::collectives {

struct Operation {
  Call call;
  const void* send = nullptr;  ///< device memory, by the address that tensors have
  void* recv = nullptr;
};

/// This rank's part of a launch, and how far it is. Calls come from one thread at a time.
class Launch {
 public:
  explicit Launch(std::vector<Operation> operations);

  bool begun() const { return begun_; }
  /// Tells the others what is to come.
  void begin(Shared& shared);
  /// Does what can be done without waiting; true: that was the last of it. `moved`: something was done. Throws c10::Error where
  /// the ranks' calls differ.
  bool advance(Shared& shared, bool& moved);
  /// As new: a graph runs it again.
  void reset();

  /// Ranks that it exchanges data with.
  std::vector<int> peers(const Shared& shared) const;
  /// "all_reduce(sum, F32, 4) and 2 more".
  std::string text() const;

  bool stalls = false;           ///< told to
  std::string fails_afterwards;  ///< told to; empty: not
  bool captured = false;

 private:
  /// This rank's entry at one end of a way.
  struct Entry {
    bool sends = false;
    int peer = 0;
    std::uint64_t number = 0;  ///< 0: not posted yet
    bool checked = false, met = false;
  };
  /// Messages of one direction between this rank and another.
  struct Lane {
    Entry entry;
    std::vector<Operation> messages;
    std::size_t now = 0;
    std::uint64_t moved = 0;  ///< chunks of messages[now]
  };
  static bool meet(Shared& shared, Entry& entry, const Call& call, bool& moved);
  static bool advance(Shared& shared, Lane& lane, bool& moved);
  static bool send_chunks(Shared& shared, Lane& lane, bool& moved);
  static bool take_chunks(Shared& shared, Lane& lane, bool& moved);
  bool advance_collective(Shared& shared, const Operation& operation, bool& moved);
  void give(Shared& shared, const Operation& operation);
  void take(Shared& shared, const Operation& operation);

  std::vector<Operation> collectives_;
  std::vector<Lane> lanes_;
  Call first_;
  std::size_t operations_ = 0;

  bool begun_ = false;
  std::size_t now_ = 0;  ///< the collective under way
  std::vector<Entry> entries_;
  std::uint64_t base_ = 0, given_ = 0, taken_ = 0;  ///< chunks of it, and of all before
};

}  // namespace qft::sim::collectives
