// Copies rows into the layouts of tiled matrix products, and back. T is the tensors' element type, E the products': float or Bf16
// in both, or Bf16 and float. A "packed" matrix is the right-hand side of a product: for Bf16, two successive rows are
// interleaved element by element (the VNNI layout); for float it is plain.
#pragma once

#include "qft/ops/cpu/kernels.h"

#include <cstdint>

namespace qft::ops::cpu {

/// Rows and columns of a tile; lengths are padded to multiples of this.
constexpr std::int64_t kAttentionTile = 64;

/// `count` rows of one head, row_stride apart.
template <class T>
struct HeadSlice {
  const T* data;
  std::int64_t row_stride, count, head_dim;
};

template <class T, class E>
struct PackingKernels {
  /// out[padded_rows][padded_dim] = rows, zero elsewhere.
  void (*copy)(const HeadSlice<T>& rows, std::int64_t padded_rows, std::int64_t padded_dim, E* out);
  /// out[head_dim][width] = rows transposed, zero beyond `count`.
  void (*transpose)(const HeadSlice<T>& rows, std::int64_t width, E* out);
  /// Packed [padded_rows, head_dim] = rows, zero beyond `count`; padded_rows is even.
  void (*pack)(const HeadSlice<T>& rows, std::int64_t padded_rows, E* out);
  /// Packed [padded_dim, width] = rows transposed, zero elsewhere.
  void (*pack_transposed)(const HeadSlice<T>& rows, std::int64_t padded_dim, std::int64_t width, E* out);
  /// to[count][head_dim] (rows to_stride apart) = sum over parts of from[part][count][head_dim].
  void (*store_sum)(const float* from, std::int64_t parts, std::int64_t part_stride, std::int64_t count, std::int64_t head_dim,
                    T* to, std::int64_t to_stride);
  /// to[count][head_dim] (rows to_stride apart) = from[head_dim][kAttentionTile] transposed.
  void (*store_transposed)(const float* from, std::int64_t count, std::int64_t head_dim, T* to, std::int64_t to_stride);
  /// out[r] = dot product of row r of a and b.
  void (*row_dots)(const HeadSlice<T>& a, const HeadSlice<T>& b, float* out);
};
template <class T, class E>
PackingKernels<T, E> packing_kernels();

}  // namespace qft::ops::cpu
