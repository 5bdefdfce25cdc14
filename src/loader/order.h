// Shuffling without a table: a pseudo-random permutation of [0, size) that any rank can evaluate at any position, from (seed,
// epoch, stream) alone.
#pragma once

#include <array>
#include <cstdint>

namespace qft::loader {

/// A Feistel network over the next power of two, with cycle walking back into [0, size) (Black and Rogaway, "Ciphers with
/// Arbitrary Finite Domains", CT-RSA 2002). O(1) memory, and O(1) time per position; the same on every machine and rank count.
/// Immutable, thread-safe.
class Order {
 public:
  /// `stream` separates permutations for different purposes in the same epoch.
  Order(std::int64_t size, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream = 0);

  std::int64_t size() const { return size_; }
  /// Returns the element at `position` of [0, size).
  std::int64_t operator()(std::int64_t position) const;

 private:
  static constexpr int kRounds = 8;
  std::uint64_t permute(std::uint64_t x) const;

  std::int64_t size_;
  int right_bits_ = 0;
  std::uint64_t left_mask_ = 0, right_mask_ = 0;
  std::array<std::uint64_t, kRounds> keys_{};
};

}  // namespace qft::loader
