// Arguments of the embedding-noise kernels: plain rows in memory with elements T; arithmetic is fp32.
#pragma once

#include "qft/ops/kernel_args.h"

#include <cmath>
#include <cstddef>

#include <c10/macros/Macros.h>

namespace qft::ops {

/// x += noise_magnitude() * symmetric(half word of the feature).
template <class T>
struct EmbeddingNoise {
  T* x;
  const std::int64_t* sample_ids;
  const std::int32_t *positions, *lengths;
  PhiloxKey key;
  float alpha;
  std::int64_t width;
};

/// Returns the half word for feature `f` among a counter's eight.
constexpr std::uint32_t half_word(const PhiloxCounter& words, int f) {
  return words[static_cast<std::size_t>(f / 2)] >> (f % 2 * 16) & 0xFFFF;
}

/// Maps a half word to a value in (-1, 1), symmetric about 0.
constexpr float symmetric(std::uint32_t half) {
  return static_cast<float>(2 * static_cast<int>(half) - 65535) * (1.0F / 65536);
}

/// Returns the maximum noise on a feature, for a sample with `length` tokens.
C10_HOST_DEVICE inline float noise_magnitude(float alpha, std::int32_t length, std::int64_t width) {
  return alpha / std::sqrt(static_cast<float>(length) * static_cast<float>(width));
}

}  // namespace qft::ops
