// The order between pieces of work: vector clocks, and for every tracked byte its last writer and readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qft::sim {

/// Known predecessors in each stream: indexed by stream, the number of its last preceding piece of work.
using Clock = std::vector<std::uint64_t>;

void join(Clock& clock, const Clock& other);
void advance(Clock& clock, int stream, std::uint64_t at);
bool covers(const Clock& clock, int stream, std::uint64_t at);

/// A piece of work, by stream and number.
struct Use {
  int stream = 0;
  std::uint64_t at = 0;
  std::shared_ptr<const std::string> name;
};

/// The last uses of memory ranges. Not thread-safe.
class Uses {
 public:
  using Address = std::uintptr_t;

  /// A use that a read or write of the range would meet and that is not ordered before `clock`.
  struct Conflict {
    Use use;
    bool writes = false;
    Address address = 0;
  };
  std::optional<Conflict> conflict(Address begin, Address end, bool write, const Clock& clock) const;

  void note(Address begin, Address end, bool write, const Use& use);
  void forget(Address begin, Address end);

 private:
  struct Range {
    Address end = 0;
    std::optional<Use> writer;
    std::vector<Use> readers;  ///< since the last write; one per stream
  };
  void split(Address at);
  void read(Address begin, Address end, const Use& use);

  std::map<Address, Range> ranges_;  ///< by begin; they do not overlap
};

}  // namespace qft::sim
