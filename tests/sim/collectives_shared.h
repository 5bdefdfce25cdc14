// The memory in which the ranks of a group meet. It is a memfd that others open by way of /proc, so it has no name that a killed
// process could leave behind; each rank holds a lock on a byte of it, which ends with the rank's process, however that ends.
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

/// What a rank says of itself.
struct alignas(64) Seat {
  std::atomic<std::uint32_t> joined{0}, finalizing{0};
  std::atomic<Left> left{Left::no};
  std::array<char, 1024> why{};         ///< it has aborted the group
  std::atomic<std::uint64_t> begun{0};  ///< twice its launches; odd while it plans one
  Call last;                            ///< the first call of the launch begun last; for messages only
};

/// One end of the way from a rank to another. Only its rank writes it. Ends meet entry by entry: the receiver's n-th call must
/// fit the sender's n-th.
struct alignas(64) End {
  std::atomic<std::uint64_t> planned{0};  ///< entries of all launches begun so far
  std::atomic<std::uint64_t> posted{0};   ///< `call` is this entry
  std::atomic<std::uint64_t> checked{0};  ///< so many entries of the other end were read
  Call call;
};

/// Chunks on their way from one rank; chunk n lies in slot n % 2 until all its readers have taken it.
struct alignas(64) Box {
  std::atomic<std::uint64_t> written{0};
  std::array<std::atomic<std::uint64_t>, kMostRanks> read{};
  alignas(64) std::array<std::array<std::byte, kChunk>, 2> slots;
};

class Shared {
 public:
  /// "PID FD NONCE", which all processes of the user on this machine can open; the maker keeps the file until close_id().
  static std::string make_id();
  static void close_id(const std::string& id);

  /// Takes the seat. Throws c10::Error: the id is not one, its maker is gone, the seat is taken, or the sizes differ.
  Shared(const std::string& id, int rank, int size);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool all_joined() const;
  bool all_finalize() const;
  /// Its process ended without leaving.
  bool died(int rank) const;
  /// Whether `rank` has begun what it cannot end before `peer` begins more.
  bool waits(int rank, int peer) const;

  Seat& seat(int rank) const;
  End& sender(int from, int to) const { return ends(from, to)[0]; }
  End& receiver(int from, int to) const { return ends(from, to)[1]; }
  /// To all ranks.
  Box& box(int from) const;
  Box& box(int from, int to) const;

  /// The first failure that a rank told the others; empty: none.
  std::string failure() const;
  void tell_failure(const std::string& text) const;

  /// Ranks that wait for each other in a ring, this one first, none of which can ever go on; empty: there is none.
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
