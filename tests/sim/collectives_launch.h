// The operations that one outermost group_end() starts on a group: collectives one after another, messages all at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives_shared.h"

namespace qft::sim::collectives {

struct Operation {
  Call call;
  const void* send = nullptr;  ///< device memory, by the tensors' address
  void* recv = nullptr;
};

/// This rank's part of a launch, and its progress. Call it from one thread at a time.
class Launch {
 public:
  explicit Launch(std::vector<Operation> operations);

  bool begun() const { return begun_; }
  /// Announces the operations to the other ranks.
  void begin(Shared& shared);
  /// Does everything possible without waiting. Returns true when the launch is complete. `moved`: something was done. Throws
  /// c10::Error if the ranks' calls differ.
  bool advance(Shared& shared, bool& moved);
  /// Resets the launch, because a graph runs it again.
  void reset();

  /// Returns the ranks with which it exchanges data.
  std::vector<int> peers(const Shared& shared) const;
  /// Returns text such as "all_reduce(sum, F32, 4) and 2 more".
  std::string text() const;

  bool stalls = false;           ///< injected fault
  std::string fails_afterwards;  ///< injected fault; empty: none
  bool captured = false;

 private:
  /// This rank's entry at one end of a path.
  struct Entry {
    bool sends = false;
    int peer = 0;
    std::uint64_t number = 0;  ///< 0: not posted yet
    bool checked = false, met = false;
  };
  /// Messages in one direction between this rank and another.
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
  std::size_t now_ = 0;  ///< index of the running collective
  std::vector<Entry> entries_;
  std::uint64_t base_ = 0, given_ = 0, taken_ = 0;  ///< chunks of the running collective, and of all before
};

}  // namespace qft::sim::collectives
