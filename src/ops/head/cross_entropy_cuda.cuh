// Log-softmax of the label token and its gradient: one block per row of logits.
#pragma once

#include "qft/device/rows.cuh"

#include <cfloat>

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

struct SoftmaxOfRow {
  float maximum, sum;  ///< of the row, and of exp(logit - maximum)
};

/// Maximum and sum of exponentials in one pass (Milakov & Gimelshein 2018); rescales the sum when the maximum rises.
template <int N, class T>
__device__ SoftmaxOfRow softmax_of_row(const T* logits, std::int64_t count) {
  float maximum = -FLT_MAX, sum = 0;
  for (std::int64_t i = threadIdx.x * N; i < count; i += blockDim.x * N) {
    const auto v = device::load<N>(logits + i);
    float raised = maximum;
    for (int k = 0; k < N; ++k) raised = fmaxf(raised, v[k]);
    sum *= expf(maximum - raised);
    for (int k = 0; k < N; ++k) sum += expf(v[k] - raised);
    maximum = raised;
  }
  const float greatest = device::max_over_row(maximum);
  return {greatest, device::sum_over_row(sum * expf(maximum - greatest))};
}

/// `target`: the column of the row's target, or a number outside of [0, count).
template <int N, class T>
__device__ void write_softmax_gradient(T* logits, std::int64_t count, std::int64_t target, float g, float lse) {
  for (std::int64_t i = threadIdx.x * N; i < count; i += blockDim.x * N) {
    auto v = device::load<N>(logits + i);
    for (int k = 0; k < N; ++k) v[k] = (i + k == target ? g : 0.0F) - g * expf(v[k] - lse);
    device::store(logits + i, v);
  }
}

template <int N, class T>
__global__ void cross_entropy_kernel(CrossEntropy<T> a) {
  const std::int64_t r = blockIdx.x, target = a.targets[r];
  CUDA_KERNEL_ASSERT(target >= 0 && target < a.vocab);
  T* logits = a.logits + r * a.vocab;
  // read before the row is overwritten; the barriers of the sums lie in between
  const float at_target = static_cast<float>(logits[target]);
  const SoftmaxOfRow row = softmax_of_row<N>(logits, a.vocab);
  const float lse = row.maximum + logf(row.sum), logprob = at_target - lse;
  if (threadIdx.x == 0 && a.logprobs != nullptr) a.logprobs[r] = logprob;
  if (a.grad != nullptr) write_softmax_gradient<N>(logits, a.vocab, target, a.grad[r], lse);
}

template <int N, class T>
__global__ void softmax_statistics_kernel(SoftmaxStatistics<T> a) {
  const std::int64_t r = blockIdx.x, target = a.targets[r], column = target - a.first;
  CUDA_KERNEL_ASSERT(target >= 0 && target < a.whole);
  const T* logits = a.logits + r * a.count;
  const SoftmaxOfRow row = softmax_of_row<N>(logits, a.count);
  if (threadIdx.x != 0) return;
  a.maxima[r] = row.maximum;
  a.sums[r] = row.sum;
  a.at_targets[r] = column >= 0 && column < a.count ? static_cast<float>(logits[column]) : 0.0F;
}

template <int N, class T>
__global__ void softmax_gradient_kernel(SoftmaxGradient<T> a) {
  const std::int64_t r = blockIdx.x;
  write_softmax_gradient<N>(a.logits + r * a.count, a.count, a.targets[r] - a.first, a.grad[r], a.lse[r]);
}

/// Calls f with the number of elements that a thread takes at once from rows of `count` logits, as a type.
template <class T, class F>
void with_logit_piece(const T* logits, std::int64_t count, F f) {
  constexpr int kPiece = device::kPiece<T>;
  device::with_piece<kPiece>(device::in_pieces<kPiece>(logits, {count}), f);
}
inline device::LaunchShape softmax_shape(std::int64_t rows) {
  constexpr int kThreads = 512;
  return device::block_a_row(rows, kThreads);
}

template <class T, class Launch>
void launch_cross_entropy(const CrossEntropy<T>& a, std::int64_t rows, const Launch& launch) {
  with_logit_piece(a.logits, a.vocab, [&](auto n) { launch(softmax_shape(rows), &cross_entropy_kernel<n(), T>, a); });
}

template <class T, class Launch>
void launch_softmax_statistics(const SoftmaxStatistics<T>& a, std::int64_t rows, const Launch& launch) {
  with_logit_piece(a.logits, a.count, [&](auto n) { launch(softmax_shape(rows), &softmax_statistics_kernel<n(), T>, a); });
}

template <class T, class Launch>
void launch_softmax_gradient(const SoftmaxGradient<T>& a, std::int64_t rows, const Launch& launch) {
  with_logit_piece(a.logits, a.count, [&](auto n) { launch(softmax_shape(rows), &softmax_gradient_kernel<n(), T>, a); });
}

}  // namespace qft::ops::cuda
