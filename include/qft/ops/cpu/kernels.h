// CPU kernels on plain rows; Highway picks the processor's fastest instruction set at run time. Each kernel handles rows [begin,
// end), so that callers can split rows over threads. T is float or Bf16; arithmetic is fp32.
#pragma once

#include "qft/ops/kernel_args.h"

#include <cstdint>

namespace qft::ops::cpu {

using Bf16 = std::uint16_t;  ///< the bits of a bfloat16

template <class T>
struct NormKernels {
  void (*forward)(const RmsNormForward<T>& args, std::int64_t begin, std::int64_t end);
  /// Adds to gweight [width] if it is not null.
  void (*backward)(const RmsNormBackward<T>& args, float* gweight, std::int64_t begin, std::int64_t end);
};
template <class T>
NormKernels<T> norm_kernels();

template <class T>
struct SwigluKernels {
  void (*forward)(const SwigluForward<T>& args, std::int64_t begin, std::int64_t end);
  void (*backward)(const SwigluBackward<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
SwigluKernels<T> swiglu_kernels();

template <class T>
struct RopeKernels {
  void (*rotate)(const Rope<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
RopeKernels<T> rope_kernels();

template <class T>
struct AddKernels {
  /// to += from
  void (*add)(T* to, const T* from, std::int64_t n);
  /// to += scale * from
  void (*add_to_float)(float* to, const T* from, float scale, std::int64_t n);
};
template <class T>
AddKernels<T> add_kernels();

template <class T>
struct DoraKernels {
  void (*norms)(const DoraNorms<T>& args, std::int64_t begin, std::int64_t end);
  void (*forward)(const DoraForward<T>& args, std::int64_t begin, std::int64_t end);
  /// Adds to sums [width].
  void (*backward)(const DoraBackward<T>& args, float* sums, std::int64_t begin, std::int64_t end);
};
template <class T>
DoraKernels<T> dora_kernels();

/// y[t, n] = scale * sum over k of weight[n, k] x[t, k] + (add ? y[t, n] : bias[n]), for few t. Kernel rows are weight rows.
template <class T>
struct Gemv {
  const T* weight;
  const T* bias;   ///< or null
  const float* x;  ///< [tokens, width]
  T* y;
  std::int64_t weight_stride, y_stride, tokens, width;
  float scale = 1.0F;
  bool add = false;
};
template <class T>
struct GemvKernels {
  void (*rows)(const Gemv<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
GemvKernels<T> gemv_kernels();

/// One query per head over `tokens` cached rows; heads [begin, end).
template <class T>
struct DecodeAttention {
  const T *q, *keys, *values;  ///< q [heads, head_dim]; keys, values [heads / group, kv_stride]
  T* out;                      ///< [heads, head_dim]
  float* scores;               ///< [heads, tokens], scratch
  std::int64_t kv_stride, group, head_dim, tokens;
  float scale;
};
template <class T>
struct DecodeKernels {
  void (*heads)(const DecodeAttention<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
DecodeKernels<T> decode_kernels();

/// out[r][c] = scale * sums[r][c] + (add ? out[r][c] : bias[c]). With `factors`, without `add`:
/// before[r][c] = scale * sums[r][c], out[r][c] = factors[c] * scale * sums[r][c] + bias[c]
struct StoreSums {
  const float* sums;
  std::int64_t sums_stride, rows, columns;
  float scale;
  const Bf16* bias;  ///< or null
  Bf16* out;
  std::int64_t out_stride;
  bool add = false;
  const float* factors = nullptr;
  Bf16* before = nullptr;
  std::int64_t before_stride = 0;
};
void store_sums(const StoreSums& args);

/// Factors of a narrow product are padded with zero rows or columns to a multiple of this.
constexpr std::int64_t kNarrowUnit = 4;
/// Maximum number of factors.
constexpr std::int64_t kMaxNarrow = 32;

/// out[t][c] = scale * sum over i of rows[t][i] factors[c][i]
struct NarrowDots {
  const Bf16* rows;
  std::int64_t row_stride, width;
  const float* factors;  ///< [count, padded][width]
  std::int64_t count;
  float scale;
  Bf16* out;
  std::int64_t out_stride;
};
/// out[c][i] += sum over t of factors[t][c] rows[t][i]
struct NarrowSums {
  const Bf16* rows;
  std::int64_t row_stride, tokens;
  const float* factors;  ///< [tokens][count, padded]
  std::int64_t count;
  float* out;
  std::int64_t out_stride, out_column_stride;
};
struct NarrowKernels {
  void (*dots)(const NarrowDots& args, std::int64_t begin, std::int64_t end);  ///< range of t
  void (*sums)(const NarrowSums& args, std::int64_t begin, std::int64_t end);  ///< range of i
};
NarrowKernels narrow_kernels();

template <class T>
struct CrossEntropyKernels {
  void (*rows)(const CrossEntropy<T>& args, std::int64_t begin, std::int64_t end);
  void (*statistics)(const SoftmaxStatistics<T>& args, std::int64_t begin, std::int64_t end);
  void (*gradient)(const SoftmaxGradient<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
CrossEntropyKernels<T> cross_entropy_kernels();

template <class T>
struct DropoutKernels {
  void (*rows)(const Dropout<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
DropoutKernels<T> dropout_kernels();

}  // namespace qft::ops::cpu
