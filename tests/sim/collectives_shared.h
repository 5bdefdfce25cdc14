// The shared memory in which a group's ranks meet. It is a memfd that other processes open through /proc, so a killed process
// leaves no name behind. Each rank locks one byte of it; the lock ends with the rank's process, however that ends.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives_call.h"

namespace qft::sim::collectives {

inline constexpr std::size_t kChunk = std::size_t{256} << 10;

enum class Left : std::uint32_t { no, destroyed, aborted };

/// State that a rank publishes about itself.
struct alignas(64) Seat {
  std::atomic<std::uint32_t> joined{0}, finalizing{0};
  std::atomic<Left> left{Left::no};
  std::array<char, 1024> why{};         ///< reason if it aborted the group
  std::atomic<std::uint64_t> begun{0};  ///< twice its number of launches; odd while it plans one
  Call last;                            ///< first call of the last begun launch; only for messages
};

/// One end of the path from one rank to another. Only the end's rank writes it. Ends match entry by entry: the receiver's n-th
/// call must fit the sender's n-th call.
struct alignas(64) End {
  std::atomic<std::uint64_t> planned{0};  ///< entries of all launches begun so far
  std::atomic<std::uint64_t> posted{0};   ///< number of the entry in `call`
  std::atomic<std::uint64_t> checked{0};  ///< entries of the other end that were read
  Call call;
};

/// Chunks on their way from one rank; chunk n is in slot n % 2 until all its readers have taken it.
struct alignas(64) Box {
  std::atomic<std::uint64_t> written{0};
  std::array<std::atomic<std::uint64_t>, kMostRanks> read{};
  alignas(64) std::array<std::array<std::byte, kChunk>, 2> slots;
};

class Shared {
 public:
  /// Returns "PID FD NONCE", which all the user's processes on this machine can open; the maker keeps the file until close_id().
  static std::string make_id();
  static void close_id(const std::string& id);

  /// Takes the rank's seat. Throws c10::Error if the id is invalid, its maker has ended, the seat is taken, or the sizes differ.
  Shared(const std::string& id, int rank, int size);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool all_joined() const;
  bool all_finalize() const;
  /// True if the rank's process ended without leaving the group.
  bool died(int rank) const;
  /// True if `rank` has begun a launch that cannot end before `peer` begins more.
  bool waits(int rank, int peer) const;

  Seat& seat(int rank) const;
  End& sender(int from, int to) const { return ends(from, to)[0]; }
  End& receiver(int from, int to) const { return ends(from, to)[1]; }
  /// Returns the box for all ranks.
  Box& box(int from) const;
  Box& box(int from, int to) const;

  /// Returns the first failure that a rank announced; empty if none.
  std::string failure() const;
  void tell_failure(const std::string& text) const;

  /// Returns ranks that wait for each other in a ring and can never continue, this rank first; empty if there is none.
  std::vector<int> ring_of_waits() const;

 private:
  struct Head;
  End* ends(int from, int to) const;
  bool find_ring(std::vector<int>& path, std::array<bool, kMostRanks>& seen) const;

  int rank_, size_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace qft::sim::collectives
