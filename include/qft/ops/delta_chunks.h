// How the gated delta rule (ops/gated_delta.h) divides a sequence. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace qft::ops {

inline constexpr std::int64_t kDeltaChunk = 64;      ///< tokens of a triangular system
inline constexpr std::int64_t kDeltaSegment = 1024;  ///< tokens between states that forward keeps

/// The most states that forward keeps of sequences of together so many tokens.
constexpr std::int64_t most_kept_delta_states(std::int64_t tokens) {
  return tokens / kDeltaSegment;
}

}  // namespace qft::ops
