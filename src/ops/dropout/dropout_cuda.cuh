// Dropout with Philox4x32-10.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

template <int N, class T>
__global__ void dropout_kernel(Dropout<T> a, std::int64_t rows) {
  const std::int64_t r = device::row_of_thread();
  if (r >= rows) return;
  const auto id = static_cast<std::uint64_t>(a.sample_ids[r]);
  const auto position = static_cast<std::uint32_t>(a.positions[r]);
  const std::int64_t row = r * a.width, width = a.skipped + a.width;
  for (std::int64_t first = threadIdx.x * kCounterFeatures; first < width; first += blockDim.x * kCounterFeatures) {
    const PhiloxCounter words = philox({a.first_counter + static_cast<std::uint32_t>(first / kCounterFeatures), position,
                                        static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32)},
                                       a.key);
#pragma unroll
    for (int part = 0; part < kCounterFeatures; part += N) {
      if (first + part >= width) break;
      if (first + part < a.skipped) continue;
      const std::int64_t i = row + first + part - a.skipped;
      const auto dropped = [&](const T* in) {
        auto v = device::load<N>(in + i);
        for (int k = 0; k < N; ++k) {
          const int f = part + k;
          const std::uint32_t half = words[f / 2] >> (f % 2 * 16) & 0xFFFF;
          v[k] = half < a.threshold ? 0.0F : v[k] * a.scale;
        }
        return v;
      };
      if (a.in != nullptr) device::store(a.out + i, dropped(a.in));
      if (a.g == nullptr) continue;
      auto sum = dropped(a.g);
      const auto before = device::load<N>(a.gx + i);
      for (int k = 0; k < N; ++k) sum[k] += before[k];
      device::store(a.gx + i, sum);
    }
  }
}

template <class T, class Launch>
void launch_dropout(const Dropout<T>& a, std::int64_t rows, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const bool whole = a.skipped == 0 && device::in_pieces<kPiece>(a.in, {a.width}) && device::in_pieces<kPiece>(a.out, {}) &&
                     device::in_pieces<kPiece>(a.g, {}) && device::in_pieces<kPiece>(a.gx, {});
  device::with_piece<kPiece>(whole, [&](auto n) {
    launch(device::rows_shape(rows, (a.skipped + a.width) / kCounterFeatures), &dropout_kernel<n(), T>, a, rows);
  });
}

}  // namespace qft::ops::cuda
