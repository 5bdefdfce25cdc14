// The embedding table's gradient without atomic additions: bit-identical between runs.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

/// One block per token; the block at an id's first token adds the gradients from all tokens with this id, in token order.
template <int N, class T, class G>
__global__ void embedding_backward_kernel(EmbeddingBackward<T, G> a) {
  const std::int64_t t = blockIdx.x, threads = blockDim.x;
  const std::int32_t id = a.tokens[t];
  CUDA_KERNEL_ASSERT(id >= 0 && id < a.whole);
  const std::int64_t row = id - a.first;
  if (row < 0 || row >= a.rows) return;
  const auto has_id = [&](std::int64_t s, std::int64_t end) { return s < end && a.tokens[s] == id; };
  for (std::int64_t first = 0; first < t; first += threads)
    if (__syncthreads_or(has_id(first + threadIdx.x, t))) return;
  for (std::int64_t first = t; first < a.count; first += threads) {
    const std::int64_t end = first + threads < a.count ? first + threads : a.count;
    if (!__syncthreads_or(has_id(first + threadIdx.x, end))) continue;
    for (std::int64_t s = first; s < end; ++s) {
      if (a.tokens[s] != id) continue;
      for (std::int64_t i = threadIdx.x * N; i < a.width; i += threads * N) {
        G* to = a.gweight + row * a.width + i;
        auto sum = device::load<N>(to);
        const auto g = device::load<N>(a.gy + s * a.width + i);
        for (int k = 0; k < N; ++k) sum[k] += g[k];
        device::store(to, sum);
      }
    }
  }
}

template <class T, class G, class Launch>
void launch_embedding_backward(const EmbeddingBackward<T, G>& a, const Launch& launch) {
  constexpr int kThreads = 256, kPiece = device::kPiece<T>;
  const bool whole = device::in_pieces<kPiece>(a.gy, {a.width}) && device::in_pieces<kPiece>(a.gweight, {});
  device::with_piece<kPiece>(
      whole, [&](auto n) { launch(device::block_a_row(a.count, kThreads), &embedding_backward_kernel<n(), T, G>, a); });
}

}  // namespace qft::ops::cuda
