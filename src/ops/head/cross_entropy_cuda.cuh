// Log-softmax of the label token and its gradient: one block per row of logits.
#pragma once

#include "qft/device/rows.cuh"

#include <cfloat>

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

/// Maximum and sum of exponentials in one pass (Milakov & Gimelshein 2018); rescales the sum when the maximum rises.
template <int N, class T>
__global__ void cross_entropy_kernel(CrossEntropy<T> a) {
  const std::int64_t r = blockIdx.x, target = a.targets[r];
  CUDA_KERNEL_ASSERT(target >= 0 && target < a.vocab);
  T* logits = a.logits + r * a.vocab;
  // read before the row is overwritten; the barriers of the sums lie in between
  const float at_target = static_cast<float>(logits[target]);
  float maximum = -FLT_MAX, sum = 0;
  for (std::int64_t i = threadIdx.x * N; i < a.vocab; i += blockDim.x * N) {
    const auto v = device::load<N>(logits + i);
    float raised = maximum;
    for (int k = 0; k < N; ++k) raised = fmaxf(raised, v[k]);
    sum *= expf(maximum - raised);
    for (int k = 0; k < N; ++k) sum += expf(v[k] - raised);
    maximum = raised;
  }
  const float greatest = device::max_over_row(maximum);
  const float lse = greatest + logf(device::sum_over_row(sum * expf(maximum - greatest)));
  const float logprob = at_target - lse;
  if (threadIdx.x == 0 && a.logprobs != nullptr) a.logprobs[r] = logprob;
  if (a.grad == nullptr) return;
  const float g = a.grad[r];
  for (std::int64_t i = threadIdx.x * N; i < a.vocab; i += blockDim.x * N) {
    auto v = device::load<N>(logits + i);
    for (int k = 0; k < N; ++k) v[k] = (i + k == target ? g : 0.0F) - g * expf(v[k] - lse);
    device::store(logits + i, v);
  }
}

template <class T, class Launch>
void launch_cross_entropy(const CrossEntropy<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kThreads = 512, kPiece = device::kPiece<T>;
  device::with_piece<kPiece>(device::in_pieces<kPiece>(a.logits, {a.vocab}),
                             [&](auto n) { launch(device::block_a_row(rows, kThreads), &cross_entropy_kernel<n(), T>, a); });
}

}  // namespace qft::ops::cuda
