// Dropout by Philox4x32-10: each counter decides four features.
#pragma once

#include "qft/device/rows.cuh"

#include "../kernel_args.h"

namespace qft::model::ops::cuda {

constexpr int kCounterFeatures = 4;

template <int N, class T>
__global__ void dropout_kernel(Dropout<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const auto id = static_cast<std::uint64_t>(a.sample_ids[r]);
  const auto position = static_cast<std::uint32_t>(a.positions[r]);
  const T* in = a.in + r * a.width;
  T* out = a.out + r * a.width;
  for (std::int64_t first = threadIdx.x * kCounterFeatures; first < a.width; first += blockDim.x * kCounterFeatures) {
    const PhiloxCounter words = philox({static_cast<std::uint32_t>(first / kCounterFeatures), position,
                                        static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                                       a.key);
#pragma unroll
    for (int part = 0; part < kCounterFeatures; part += N) {
      const std::int64_t i = first + part;
      if (i >= a.width) break;
      auto v = device::load<N>(in + i);
      for (int k = 0; k < N; ++k) v[k] = words[part + k] < a.threshold ? 0.0F : v[k] * a.scale;
      if (a.add) {
        const auto before = device::load<N>(out + i);
        for (int k = 0; k < N; ++k) v[k] += before[k];
      }
      device::store(out + i, v);
    }
  }
}

template <class T, class Launch>
void launch_dropout(const Dropout<T>& a, std::int64_t rows, const Launch& launch) {
  const bool whole = device::in_pieces<kCounterFeatures>(a.in, {a.width}) && device::in_pieces<kCounterFeatures>(a.out, {});
  device::with_piece<kCounterFeatures>(whole, [&](auto n) {
    launch(device::rows_shape(rows, a.width / kCounterFeatures), &dropout_kernel<n(), T>, a, rows);
  });
}

}  // namespace qft::model::ops::cuda
