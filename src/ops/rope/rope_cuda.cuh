// Rotary embedding: a warp or a block per token.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

template <int N, class T>
__global__ void rope_kernel(Rope<T> a, std::int64_t tokens) {
  const std::int64_t t = device::row_of_thread();
  if (t >= tokens) return;
  const std::int64_t position = a.positions[t];
  CUDA_KERNEL_ASSERT(position >= 0 && position < a.max_positions);
  const float *cosines = a.cos + position * a.half, *sines = a.sin + position * a.half;
  const int half = static_cast<int>(a.half), pieces = half / N, count = static_cast<int>(a.heads) * pieces;
  for (int p = static_cast<int>(threadIdx.x); p < count; p += static_cast<int>(blockDim.x)) {
    const int i = p % pieces * N;
    T* first = a.x.row(t, p / pieces) + i;
    auto x = device::load<N>(first), y = device::load<N>(first + half);
    const auto c = device::load<N>(cosines + i), s = device::load<N>(sines + i);
    for (int k = 0; k < N; ++k) {
      const float before = x[k], sine = a.sign * s[k];
      x[k] = before * c[k] - y[k] * sine;
      y[k] = y[k] * c[k] + before * sine;
    }
    device::store(first, x);
    device::store(first + half, y);
  }
}

template <class T, class Launch>
void launch_rope(const Rope<T>& a, std::int64_t tokens, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const bool whole = device::in_pieces<kPiece>(a.x.data, {a.x.token_stride, a.x.head_stride, a.half}) &&
                     device::in_pieces<kPiece>(a.cos, {}) && device::in_pieces<kPiece>(a.sin, {});
  device::with_piece<kPiece>(
      whole, [&](auto n) { launch(device::rows_shape(tokens, a.heads * a.half / n), &rope_kernel<n(), T>, a, tokens); });
}

}  // namespace qft::ops::cuda
