// SwiGLU: a warp or a block per token.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

__device__ inline float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

template <int N, class T>
__global__ void swiglu_forward_kernel(SwigluForward<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const T *gate = a.gate_up + r * 2 * a.width, *up = gate + a.width;
  for (std::int64_t i = threadIdx.x * N; i < a.width; i += blockDim.x * N) {
    auto g = device::load<N>(gate + i);
    const auto u = device::load<N>(up + i);
    for (int k = 0; k < N; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
    device::store(a.act + r * a.width + i, g);
  }
}

template <int N, class T>
__global__ void swiglu_backward_kernel(SwigluBackward<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const T *gate = a.gate_up + r * 2 * a.width, *up = gate + a.width, *gout = a.gact + r * a.width;
  T *ggate = a.ggate_up + r * 2 * a.width, *gup = ggate + a.width;
  for (std::int64_t i = threadIdx.x * N; i < a.width; i += blockDim.x * N) {
    auto g = device::load<N>(gate + i), u = device::load<N>(up + i);
    const auto d = device::load<N>(gout + i);
    device::Floats<N> act;
    for (int k = 0; k < N; ++k) {
      const float s = sigmoid(g[k]), silu = g[k] * s;
      act[k] = silu * u[k];
      g[k] = d[k] * u[k] * (s + silu * (1.0F - s));  // silu' = s + silu (1 - s)
      u[k] = d[k] * silu;
    }
    if (a.act != nullptr) device::store(a.act + r * a.width + i, act);
    device::store(ggate + i, g);
    device::store(gup + i, u);
  }
}

template <class T, class Launch>
void launch_swiglu_forward(const SwigluForward<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const bool whole = device::in_pieces<kPiece>(a.gate_up, {a.width}) && device::in_pieces<kPiece>(a.act, {});
  device::with_piece<kPiece>(
      whole, [&](auto n) { launch(device::rows_shape(rows, a.width / n), &swiglu_forward_kernel<n(), T>, a, rows); });
}

template <class T, class Launch>
void launch_swiglu_backward(const SwigluBackward<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const bool whole = device::in_pieces<kPiece>(a.gate_up, {a.width}) && device::in_pieces<kPiece>(a.gact, {}) &&
                     device::in_pieces<kPiece>(a.ggate_up, {}) && device::in_pieces<kPiece>(a.act, {});
  device::with_piece<kPiece>(
      whole, [&](auto n) { launch(device::rows_shape(rows, a.width / n), &swiglu_backward_kernel<n(), T>, a, rows); });
}

}  // namespace qft::ops::cuda
