// Shared by kernels over rows: 16-byte loads and stores, sums over the threads of a row, launch shapes. This file and the *.cuh
// files with kernels also compile as plain C++ after a header that replaces CUDA's names (tests/support/simt.h), so kernels can
// be tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <c10/macros/Macros.h>

namespace qft::device {

constexpr int kWarp = 32;
constexpr int kPieceBytes = 16;  ///< the widest load of a thread

/// N neighbouring elements, moved at once.
template <class T, int N>
struct alignas(N * sizeof(T) < kPieceBytes ? N * sizeof(T) : kPieceBytes) Piece {
  T values[N];
};

template <int N>
struct Floats {
  float values[N];
  __device__ float& operator[](int i) { return values[i]; }
  __device__ float operator[](int i) const { return values[i]; }
};

template <int N, class T>
__device__ Floats<N> load(const T* from) {
  const Piece<T, N> piece = *reinterpret_cast<const Piece<T, N>*>(from);
  Floats<N> to;
  for (int i = 0; i < N; ++i) to[i] = static_cast<float>(piece.values[i]);
  return to;
}

template <int N, class T>
__device__ void store(T* to, const Floats<N>& from) {
  Piece<T, N> piece;
  for (int i = 0; i < N; ++i) piece.values[i] = static_cast<T>(from[i]);
  *reinterpret_cast<Piece<T, N>*>(to) = piece;
}

/// Rounds `value` as if it were stored as T and read back.
template <class T>
__device__ float rounded(float value) {
  return static_cast<float>(static_cast<T>(value));
}

/// Combines `value` over all threads of a row (along x: a warp, or the whole block), in a fixed order. All threads of the row
/// must call it and get the same result.
template <class T, class Combine>
__device__ T over_row(T value, Combine combine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFFU, value, mask));
  if (blockDim.x == kWarp) return value;
  __shared__ T warps[kWarp];
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned w = 1; w < blockDim.x / kWarp; ++w) value = combine(value, warps[w]);
  __syncthreads();  // the next call overwrites `warps`
  return value;
}

template <class T>
__device__ T sum_over_row(T value) {
  return over_row(value, [](T a, T b) { return a + b; });
}
__device__ inline float max_over_row(float value) {
  return over_row(value, [](float a, float b) { return fmaxf(a, b); });
}

/// Returns the row of this thread, in a launch of rows_shape(). The last block may reach beyond the rows.
__device__ inline std::int64_t row_of_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

struct LaunchShape {
  dim3 grid, block;
};

/// Returns one block of `threads` for each row.
inline LaunchShape block_a_row(std::int64_t rows, int threads) {
  return {dim3(static_cast<unsigned>(rows)), dim3(static_cast<unsigned>(threads))};
}

/// Returns a warp per row if a row has few pieces, otherwise a block per row.
inline LaunchShape rows_shape(std::int64_t rows, std::int64_t pieces) {
  constexpr int kRowsABlock = 8, kThreads = 256;
  if (pieces > 4 * kWarp) return block_a_row(rows, kThreads);
  return {dim3(static_cast<unsigned>((rows + kRowsABlock - 1) / kRowsABlock)), dim3(kWarp, kRowsABlock)};
}

/// Returns threads along x for `count` elements.
inline LaunchShape flat_shape(std::int64_t count) {
  constexpr int kThreads = 256;
  return {dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), dim3(kThreads)};
}

/// Elements of T in the widest load.
template <class T>
constexpr int kPiece = kPieceBytes / static_cast<int>(sizeof(T));

/// Returns whether pieces of N elements are aligned at `data` and at all multiples of `strides` from there.
template <int N, class T>
bool in_pieces(const T* data, std::initializer_list<std::int64_t> strides) {
  bool whole = reinterpret_cast<std::uintptr_t>(data) % alignof(Piece<T, N>) == 0;
  for (const std::int64_t stride : strides) whole = whole && stride % N == 0;
  return whole;
}

/// Calls f with the number of elements that a thread takes at once, N or 1, as a type.
template <int N, class F>
void with_piece(bool whole_pieces, F f) {
  if (whole_pieces)
    f(std::integral_constant<int, N>());
  else
    f(std::integral_constant<int, 1>());
}

}  // namespace qft::device
