// CPU kernels of the gated delta net. T is float or Bf16; arithmetic is fp32.
#pragma once

#include "qft/ops/cpu/kernels.h"
#include "qft/ops/delta_chunks.h"
#include "qft/ops/kernel_args.h"

#include <cstdint>

namespace qft::ops::cpu {

/// Rows of one sequence, channels [0, channels).
template <class T>
struct ShortConvolution {
  const T* x;
  const T* before;      ///< [taps - 1, channels]: the rows before x, or null: zeros
  const float* weight;  ///< [taps, channels]
  T* y;                 ///< forward
  const T* gy;          ///< backward
  T* gx;                ///< may be gy
  float* gweight;       ///< [taps, channels] or null
  std::int64_t x_stride, y_stride, gy_stride, gx_stride;
  std::int64_t tokens, channels, taps;
};
template <class T>
struct ConvolutionKernels {
  void (*forward)(const ShortConvolution<T>& args, std::int64_t begin, std::int64_t end);  ///< range of tokens
  /// Handles channels [begin, end), at most kConvolutionChannels; adds to gweight if it is not null.
  void (*backward)(const ShortConvolution<T>& args, std::int64_t begin, std::int64_t end);
};
inline constexpr std::int64_t kConvolutionChannels = 256;
template <class T>
ConvolutionKernels<T> convolution_kernels();

template <class T>
struct GatedNorm {
  HeadRows<const T> x, z, gy;
  HeadRows<T> y, gx, gz;
  const T* weight;
  float* rstd;
  std::int64_t heads, width;
  float eps;
};
template <class T>
struct GatedNormKernels {
  void (*forward)(const GatedNorm<T>& args, std::int64_t begin, std::int64_t end);
  /// Adds to gweight [width] if it is not null.
  void (*backward)(const GatedNorm<T>& args, float* gweight, std::int64_t begin, std::int64_t end);
};
template <class T>
GatedNormKernels<T> gated_norm_kernels();

/// Arguments of the gated delta rule (ops/gated_delta.h). Row r of q, k, v and of their gradients belongs to token r and a head.
template <class T>
struct DeltaRule {
  HeadRows<const T> q, k, v, gout;
  HeadRows<T> out;  ///< data may be null: compute only the state
  HeadRows<T> gq, gk, gv;
  const float *g, *beta;  ///< [tokens, value_heads]
  float *gg, *gbeta;
  std::int64_t value_heads, group, key_dim, value_dim;  ///< group: value heads per key head
};
/// Rows of one chunk and key head: tokens [token, token + count). `before` rows of the chunk precede them.
struct DeltaRows {
  std::int64_t key_head, token, before, count;
};
/// State of a key head's value heads, with the names in ops/gated_delta.h.
struct DeltaMemory {
  float* states;     ///< [group, Dk, Dv]: S at the chunk's start
  float* keys;       ///< [Dk, kDeltaChunk]: the chunk's normalised k, one per column
  float* updates;    ///< [group, kDeltaChunk, Dv]: u
  double* sums;      ///< [group, kDeltaChunk]: G
  float* residuals;  ///< [group, kDeltaChunk, Dv]: u / beta of these rows, from the first place on; backward reads them
};
/// Computes the rows and stores them in `memory`. Once the chunk is full, `memory` holds the next chunk's states.
template <class T>
using DeltaAdvance = void (*)(const DeltaRule<T>& args, const DeltaRows& rows, const DeltaMemory& memory, float* scratch);
template <class T>
DeltaAdvance<T> delta_advance();
/// Computes the gradients of a whole chunk's rows. Overwrites `gstates` [group, Dk, Dv], the gradient of the states after the
/// chunk, with the gradient of the states before it. Reads states and residuals from `memory`.
template <class T>
using DeltaBackward = void (*)(const DeltaRule<T>& args, const DeltaRows& rows, const DeltaMemory& memory, float* gstates,
                               float* scratch);
template <class T>
DeltaBackward<T> delta_backward();
/// Scratch elements for delta_advance and delta_backward.
constexpr std::int64_t delta_scratch_elements(std::int64_t key_dim, std::int64_t value_dim) {
  return kDeltaChunk * (6 * key_dim + 6 * value_dim + 7 * kDeltaChunk + 6) + 2 * key_dim * value_dim;
}

}  // namespace qft::ops::cpu
