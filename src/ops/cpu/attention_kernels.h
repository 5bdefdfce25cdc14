// The parts of tiled attention around its matrix products: packing, softmax, and the softmax gradient on tiles of scores. T is
// the tensors' element type, E the products': float or Bf16 in both, or Bf16 and float. A "packed" matrix is the right-hand side
// of a product: for Bf16, two successive rows are interleaved element by element (the VNNI layout); for float it is plain.
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

/// One online softmax step: kAttentionTile query rows and a block of keys.
template <class E>
struct SoftmaxTile {
  float* scores;     ///< [tile][ld]; overwritten if probabilities shares the memory (float)
  E* probabilities;  ///< [tile][ld]: exp2(score * scale - maximum)
  std::int64_t ld, columns;
  std::int64_t visible,
      hidden;            ///< row r sees columns [hidden + r, visible + r); others get probability 0
  float scale;           ///< multiplies the scores; includes log2(e)
  float *maximum, *sum;  ///< [tile]: of the scaled scores so far
  float* out;            ///< [tile][head_dim], rescaled when the maximum rises
  std::int64_t head_dim;
  bool first;  ///< first block: maximum, sum and out are not read
};
/// Gradient of the scores for `rows` queries and kAttentionTile keys.
template <class E>
struct GradientTile {
  const float *scores, *gprobabilities;  ///< [rows][tile]
  std::int64_t rows;
  bool diagonal;             ///< the first tile lies on the diagonal: row r sees only columns 0..r
  std::int64_t hidden;       ///< row r does not see the first hidden + r columns
  const float *lse, *delta;  ///< [rows]; lse times log2(e)
  float scale;               ///< multiplies the scores
  E* probabilities;          ///< packed [rows, tile]
  E* gscores;                ///< [rows][tile], scale applied
  E* gscores_packed;         ///< packed [rows, tile]; not written for float, because gscores has the same layout
};
template <class T, class E>
struct SoftmaxKernels {
  void (*step)(const SoftmaxTile<E>& args);
  /// After the last step: to[rows][head_dim] = out / sum and lse[r] = natural log of the denominator.
  void (*finish)(const SoftmaxTile<E>& args, std::int64_t rows, T* to, std::int64_t to_stride, float* lse);
  void (*gradient)(const GradientTile<E>& args);
};
template <class T, class E>
SoftmaxKernels<T, E> softmax_kernels();

}  // namespace qft::ops::cpu
