// The few shapes that micro-batches are padded to where layers run as graphs.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>

namespace qft::parallel {

/// `n` rounded up: there are eight sizes between one power of two and the next, at least 64 apart. From 512 on at most an eighth
/// more.
constexpr std::int64_t padded_tokens(std::int64_t n) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  const std::int64_t step = std::max<std::int64_t>(64, power / 16);
  return (n + step - 1) / step * step;
}

/// A padded shape: the rows that a micro-batch lacks become one more sequence, the sequences that it lacks are empty.
/// Kernels are told that the longest sequence has all rows, because any may: blocks beyond a sequence's end return at once.
struct GraphShape {
  std::int64_t tokens = 0, sequences = 0;
  auto operator<=>(const GraphShape&) const = default;

  /// The shape for a micro-batch with so many tokens in so many sequences.
  static constexpr GraphShape of(std::int64_t tokens, std::int64_t sequences) {
    return {padded_tokens(tokens), static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(sequences + 1)))};
  }
};

}  // namespace qft::parallel
