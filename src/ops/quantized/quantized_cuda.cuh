// Decodes quantised weights: a warp or a block per row of codes.
#pragma once

#include "qft/device/rows.cuh"

#include "../common/launches_cuda.h"

namespace qft::ops::cuda {

/// Returns the scale at `place`, decoded first if nested.
__device__ inline float scale_at(const QuantizedRows& q, const std::uint8_t* bytes, const float* scale_numbers,
                                 std::int64_t place) {
  if (!q.nested) return reinterpret_cast<const float*>(bytes + q.scales)[place];
  const float each = reinterpret_cast<const float*>(bytes + q.nested_scales)[place / kNestedBlock];
  const float offset = *reinterpret_cast<const float*>(bytes + q.offset);
  // not fused, for the same bits as on other devices
  return __fadd_rn(__fmul_rn(scale_numbers[bytes[q.scales + place]], each), offset);
}

/// Decodes codes `first` to first + N - 1.
template <int N>
__device__ device::Floats<N> numbers_at(const QuantizedRows& q, const std::uint8_t* bytes, const float* numbers,
                                        std::int64_t first) {
  device::Floats<N> x;
  if (!q.four_bits) {
    const auto codes = *reinterpret_cast<const device::Piece<std::uint8_t, N>*>(bytes + first);
    for (int k = 0; k < N; ++k) x[k] = numbers[codes.values[k]];
  } else if constexpr (N == 1) {
    const std::uint8_t pair = bytes[first / 2];
    x[0] = numbers[first % 2 == 0 ? pair >> 4 : pair & 15];
  } else {
    const auto pairs = *reinterpret_cast<const device::Piece<std::uint8_t, N / 2>*>(bytes + first / 2);
    for (int k = 0; k < N; ++k) x[k] = numbers[k % 2 == 0 ? pairs.values[k / 2] >> 4 : pairs.values[k / 2] & 15];
  }
  return x;
}

template <int N, class T>
__global__ void dequantize_kernel(Dequantize<T> a) {
  const QuantizedRows& q = a.from;
  __shared__ float numbers[256], scale_numbers[256];
  const unsigned threads = blockDim.x * blockDim.y;
  for (unsigned i = threadIdx.y * blockDim.x + threadIdx.x; i < 256; i += threads) {
    numbers[i] = q.numbers[i];
    scale_numbers[i] = q.scale_numbers[i];
  }
  __syncthreads();
  const std::int64_t row = device::row_of_thread();
  if (row >= q.rows) return;
  const std::int64_t first = row * q.width, scale0 = row / q.tile_rows * q.across;
  const auto width = static_cast<unsigned>(q.width < q.numel - first ? q.width : q.numel - first),
             block = static_cast<unsigned>(q.block);
  for (unsigned i = threadIdx.x * N; i < width; i += blockDim.x * N) {
    auto x = numbers_at<N>(q, a.bytes, numbers, first + i);
    const std::int64_t place = scale0 + i / block;
    const float scale = scale_at(q, a.bytes, scale_numbers, place),
                zero = q.zeros > 0 ? static_cast<float>(a.bytes[q.zeros + place]) : 0.0F;
    for (int k = 0; k < N; ++k) x[k] = (x[k] - zero) * scale * q.factor;
    if (q.order == 0) {
      device::store(a.out + first + i, x);
      continue;
    }
    const auto* order = reinterpret_cast<const std::int32_t*>(a.bytes + q.order) + i;
    for (int k = 0; k < N; ++k) a.out[first + order[k]] = static_cast<T>(x[k]);
  }
}

template <class T, class Launch>
void launch_dequantize(const Dequantize<T>& a, const Launch& launch) {
  constexpr int kPiece = device::kPiece<T>;
  const QuantizedRows& q = a.from;
  const bool whole = q.numel % kPiece == 0 && device::in_pieces<kPiece>(a.out, {q.width, q.block}) &&
                     (q.four_bits ? device::in_pieces<kPiece / 2>(a.bytes, {}) : device::in_pieces<kPiece>(a.bytes, {}));
  device::with_piece<kPiece>(whole,
                             [&](auto n) { launch(device::rows_shape(q.rows, q.width / n), &dequantize_kernel<n(), T>, a); });
}

}  // namespace qft::ops::cuda
