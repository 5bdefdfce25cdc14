// How the gated delta rule (ops/gated_delta.h) divides a sequence. Needs no LibTorch.
#pragma once

#include <cstdint>

namespace qft::ops {

inline constexpr std::int64_t kDeltaChunk = 64;      ///< tokens per triangular system
inline constexpr std::int64_t kDeltaSegment = 1024;  ///< tokens between the states that forward keeps

struct DeltaShape {
  std::int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
};

/// Upper bound on the states that forward keeps for sequences with `tokens` tokens in total.
constexpr std::int64_t max_kept_delta_states(std::int64_t tokens) {
  return tokens / kDeltaSegment;
}

}  // namespace qft::ops
