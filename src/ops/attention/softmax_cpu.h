// The parts of tiled attention between its matrix products: softmax, and the softmax gradient on tiles of scores. T, E and
// "packed" are as in packing_cpu.h.
#pragma once

#include "qft/ops/cpu/kernels.h"

#include <cstdint>

#include "../common/packing_cpu.h"

namespace qft::ops::cpu {

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
