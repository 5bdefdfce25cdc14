// Sums of squares in fp64, in a fixed order.
#pragma once

#include "qft/device/rows.cuh"

#include "launches.h"

namespace qft::optim::cuda {

__device__ inline double square(double value) {
  return value * value;
}

/// Fills parts[b] with the square sum of block b's elements, one of kSquareParts blocks.
template <int N, class T>
__global__ void square_sum_kernel(const T* values, std::int64_t count, double* parts) {
  double sum = 0;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x * N) {
    if (i + N <= count) {
      const auto v = device::load<N>(values + i);
      for (int k = 0; k < N; ++k) sum += square(v[k]);
    } else {
      for (std::int64_t k = i; k < count; ++k) sum += square(static_cast<float>(values[k]));
    }
  }
  sum = device::sum_over_row(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class T, class Launch>
void launch_square_sum(const T* values, std::int64_t count, double* parts, const Launch& launch) {
  constexpr int kThreads = 512, kPiece = device::kPiece<T>;
  device::with_piece<kPiece>(device::in_pieces<kPiece>(values, {}), [&](auto n) {
    launch(device::block_a_row(kSquareParts, kThreads), &square_sum_kernel<n(), T>, values, count, parts);
  });
}

}  // namespace qft::optim::cuda
