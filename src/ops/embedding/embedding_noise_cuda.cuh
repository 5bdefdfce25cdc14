// NEFTune noise with Philox4x32-10.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

template <int N, class T>
__global__ void embedding_noise_kernel(EmbeddingNoise<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const auto id = static_cast<std::uint64_t>(a.sample_ids[r]);
  const auto position = static_cast<std::uint32_t>(a.positions[r]);
  const float magnitude = noise_magnitude(a.alpha, a.lengths[r], a.width);
  T* x = a.x + r * a.width;
  for (std::int64_t first = threadIdx.x * kCounterFeatures; first < a.width; first += blockDim.x * kCounterFeatures) {
    const PhiloxCounter words = philox({static_cast<std::uint32_t>(first / kCounterFeatures), position,
                                        static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                                       a.key);
#pragma unroll
    for (int part = 0; part < kCounterFeatures; part += N) {
      if (first + part >= a.width) break;
      auto v = device::load<N>(x + first + part);
      for (int k = 0; k < N; ++k) v[k] += magnitude * symmetric(half_word(words, part + k));
      device::store(x + first + part, v);
    }
  }
}

template <class T, class Launch>
void launch_embedding_noise(const EmbeddingNoise<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  device::with_piece<kPiece>(device::in_pieces<kPiece>(a.x, {a.width}), [&](auto n) {
    launch(device::rows_shape(rows, a.width / kCounterFeatures), &embedding_noise_kernel<n(), T>, a, rows);
  });
}

}  // namespace qft::ops::cuda
