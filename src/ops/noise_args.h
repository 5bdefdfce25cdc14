// What the kernels of the noise on embeddings take: plain rows in memory, of T; arithmetic is fp32.
#pragma once

#include "qft/ops/kernel_args.h"

#include <cmath>
#include <cstddef>

#include <c10/macros/Macros.h>

namespace qft::ops {

/// x += noise_magnitude() times symmetric() of the feature's half word.
template <class T>
struct EmbeddingNoise {
  T* x;
  const std::int64_t* sample_ids;
  const std::int32_t *positions, *lengths;
  PhiloxKey key;
  float alpha;
  std::int64_t width;
};

/// Of the eight half words of a counter that of feature `f`.
constexpr std::uint32_t half_word(const PhiloxCounter& words, int f) {
  return words[static_cast<std::size_t>(f / 2)] >> (f % 2 * 16) & 0xFFFF;
}

/// A half word as a value in (-1, 1), symmetric about 0.
constexpr float symmetric(std::uint32_t half) {
  return static_cast<float>(2 * static_cast<int>(half) - 65535) * (1.0F / 65536);
}

/// The most noise on a feature of a sample of so many tokens.
C10_HOST_DEVICE inline float noise_magnitude(float alpha, std::int32_t length, std::int64_t width) {
  return alpha / std::sqrt(static_cast<float>(length) * static_cast<float>(width));
}

}  // namespace qft::ops
