// The small set of shapes to which micro-batches are padded when layers run as graphs.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>

namespace qft::parallel {

/// Returns `n` rounded up. There are eight sizes between one power of two and the next, at least 64 apart. From 512 on the
/// padding is at most an eighth of `n`.
constexpr std::int64_t padded_tokens(std::int64_t n) {
  const auto power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  const std::int64_t step = std::max<std::int64_t>(64, power / 16);
  return (n + step - 1) / step * step;
}

/// A padded shape. The padding rows form one more sequence; the missing sequences are empty. Kernels get the total row count as
/// the longest sequence length, because any sequence may be that long; thread blocks beyond a sequence's end return at once.
struct GraphShape {
  std::int64_t tokens = 0, sequences = 0;
  auto operator<=>(const GraphShape&) const = default;

  /// Returns the shape for a micro-batch of `tokens` tokens in `sequences` sequences.
  static constexpr GraphShape of(std::int64_t tokens, std::int64_t sequences) {
    return {padded_tokens(tokens), static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(sequences + 1)))};
  }
};

}  // namespace qft::parallel
