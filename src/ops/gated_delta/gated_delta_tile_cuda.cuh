// Products of small matrices in one thread block: a square of 64 x 64 numbers, 4 x 4 per thread, in fp32. The factors pass
// through shared memory, 16 steps of the inner index at a time. Each sum is a chain in the order of the inner index.
#pragma once

#include "qft/device/rows.cuh"

#include "gated_delta_args_cuda.h"

namespace qft::ops::cuda {

constexpr int kDeltaThreads = 256;
constexpr int kRows = static_cast<int>(kDeltaChunk);
constexpr int kDepth = 16;
constexpr int kPitch = kRows + 4;  ///< row pitch in shared memory; avoids bank conflicts

/// A matrix [kRows, kPitch] in shared memory.
struct alignas(device::kPieceBytes) Square {
  float at[kRows][kPitch];
};
/// Shared memory for multiply().
struct alignas(device::kPieceBytes) Tiles {
  float a[kDepth][kPitch], b[kDepth][kPitch];
};
struct Numbers {
  float at[4][4];
};

/// A matrix in memory. four() returns four neighbouring numbers of a row; zeros outside the matrix.
struct Matrix {
  const float* data;
  int pitch, rows, columns;  ///< multiples of 4, except rows
  __device__ device::Floats<4> four(int row, int column) const {
    return row < rows && column < columns ? device::load<4>(data + static_cast<std::int64_t>(row) * pitch + column)
                                          : device::Floats<4>{};
  }
};
/// A matrix with each row multiplied by its own factor.
template <class M>
struct ScaledRows {
  M matrix;
  const float* scale;
  __device__ device::Floats<4> four(int row, int column) const {
    auto x = matrix.four(row, column);
    for (int i = 0; i < 4; ++i) x[i] *= scale[row];
    return x;
  }
};
template <class M>
__device__ ScaledRows<M> scaled(const M& matrix, const float* scale) {
  return {matrix, scale};
}
/// One head's rows in a tensor over all tokens, for any type and width.
template <class T>
struct TokenRows {
  const T* data;
  std::int64_t stride;
  int rows, columns;
  bool in_fours;  ///< aligned for reads of four elements
  __device__ device::Floats<4> four(int row, int column) const {
    device::Floats<4> x{};
    if (row >= rows) return x;
    const T* from = data + row * stride + column;
    if (in_fours && column + 4 <= columns) return device::load<4>(from);
    for (int i = 0; i < 4; ++i)
      if (column + i < columns) x[i] = static_cast<float>(from[i]);
    return x;
  }
};
template <class T>
__device__ TokenRows<T> token_rows(const HeadRows<const T>& x, const DeltaChunk& chunk, int head, std::int64_t width) {
  const T* data = x.row(chunk.token, head);
  const bool in_fours = reinterpret_cast<std::uintptr_t>(data) % (4 * sizeof(T)) == 0 && x.token_stride % 4 == 0;
  return {data, x.token_stride, chunk.rows, static_cast<int>(width), in_fours};
}
__device__ inline Matrix rows_of(const float* data, std::int64_t width) {
  return {data, static_cast<int>(width), kRows, static_cast<int>(width)};
}
__device__ inline Matrix rows_of(const Square& square) {
  return {&square.at[0][0], kPitch, kRows, kRows};
}

/// This thread's first row and first column. A warp covers 16 x 32 of the 64 x 64 numbers, so that its threads share their reads.
__device__ inline int tile_row() {
  const int t = static_cast<int>(threadIdx.x);
  return t / 64 * 16 + t % 32 / 8 * 4;
}
__device__ inline int tile_column() {
  const int t = static_cast<int>(threadIdx.x);
  return t / 32 % 2 * 32 + t % 8 * 4;
}

/// The index of a stored factor over which the sums run.
enum class Inner { rows, columns };

/// Reads this thread's part of a factor: four numbers along the contiguous dimension, at inner index `inner` and outer index
/// `outer`.
template <Inner kInner, class M>
__device__ device::Floats<4> fetch(const M& m, int inner, int outer) {
  const int t = static_cast<int>(threadIdx.x);
  if constexpr (kInner == Inner::rows) return m.four(inner + t / 16, outer + t % 16 * 4);
  return m.four(outer + t / 4, inner + t % 4 * 4);
}
template <Inner kInner>
__device__ void put(const device::Floats<4>& x, float (&tile)[kDepth][kPitch]) {
  const int t = static_cast<int>(threadIdx.x);
  if constexpr (kInner == Inner::rows)
    device::store(&tile[t / 16][t % 16 * 4], x);
  else
    for (int i = 0; i < 4; ++i) tile[t % 4 * 4 + i][t / 4] = x[i];
}

/// c += a b for rows of a from a_first on and columns of b from b_first on. All threads must call this, after a barrier behind
/// the writes of a and b.
template <Inner kInnerA, Inner kInnerB, class A, class B>
__device__ void multiply(const A& a, const B& b, int inner, int a_first, int b_first, Tiles& tiles, Numbers& c) {
  const int row = tile_row(), column = tile_column();
  auto next_a = fetch<kInnerA>(a, 0, a_first), next_b = fetch<kInnerB>(b, 0, b_first);
  for (int k = 0; k < inner; k += kDepth) {
    __syncthreads();  // all reads of the tiles are done
    put<kInnerA>(next_a, tiles.a);
    put<kInnerB>(next_b, tiles.b);
    __syncthreads();
    if (k + kDepth < inner) {
      next_a = fetch<kInnerA>(a, k + kDepth, a_first);
      next_b = fetch<kInnerB>(b, k + kDepth, b_first);
    }
    for (int d = 0; d < kDepth; ++d) {
      const auto x = device::load<4>(&tiles.a[d][row]), y = device::load<4>(&tiles.b[d][column]);
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c.at[i][j] += x[i] * y[j];
    }
  }
}

/// Calls f(i, j, row, column) for each of this thread's numbers.
template <class F>
__device__ void for_numbers(const F& f) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) f(i, j, tile_row() + i, tile_column() + j);
}

/// Writes columns from `first` on to a matrix [rows, width]; width is a multiple of 4.
__device__ inline void write_tile(const Numbers& c, float* to, std::int64_t width, int row0, int rows, int first) {
  const int column = first + tile_column();
  if (column >= width) return;
  for (int i = 0; i < 4; ++i) {
    const int row = row0 + tile_row() + i;
    if (row >= rows) return;
    device::store(to + row * width + column, device::Floats<4>{{c.at[i][0], c.at[i][1], c.at[i][2], c.at[i][3]}});
  }
}

/// Returns D_ij of ops/gated_delta.h for j <= i, else 0.
__device__ inline float decay_between(const double* sums, int i, int j) {
  return j <= i ? expf(fminf(static_cast<float>(sums[i] - sums[j]), 0.0F)) : 0.0F;
}

}  // namespace qft::ops::cuda
