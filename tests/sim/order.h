// Which work is ordered after which: vector clocks, and for every byte that matters who wrote and read it last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace qft::sim {

/// How much of each stream is known to come before: by a stream's index the number of its last piece of work.
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

/// The last uses of ranges of memory. Not thread-safe.
class Uses {
 public:
  using Address = std::uintptr_t;

  /// Something not ordered before `clock` that a read or a write of the range would meet.
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
    std::vector<Use> readers;  ///< since the last write; one for each stream
  };
  void split(Address at);
  void read(Address begin, Address end, const Use& use);

  std::map<Address, Range> ranges_;  ///< by their begin; they do not overlap
};

}  // namespace qft::sim
