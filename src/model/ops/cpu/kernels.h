// CPU kernels on plain rows: the fastest instruction set that the processor has is chosen at run time
// (Highway). Each works on rows [begin, end), so that callers split rows over threads. T is float or Bf16;
// arithmetic is fp32.
#pragma once

#include "qft/model/ops/philox.h"

#include <cstdint>

namespace qft::model::ops::cpu {

using Bf16 = std::uint16_t;  ///< the bits of a bfloat16

/// Rows of `width` elements: row r is head r % heads of token r / heads.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
  T* row(std::int64_t token, std::int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
};

template <class T>
struct RmsNormForward {
  HeadRows<const T> x;
  HeadRows<T> y;
  const T* weight;
  float* rstd;
  std::int64_t heads, width;
  double eps;
};
template <class T>
struct RmsNormBackward {
  HeadRows<const T> gy, x, residual_grad;  ///< residual_grad.data may be null
  HeadRows<T> gx;
  const T* weight;
  const float* rstd;
  std::int64_t heads, width;
};
template <class T>
struct NormKernels {
  void (*forward)(const RmsNormForward<T>& args, std::int64_t begin, std::int64_t end);
  /// Adds to gweight [width] if it is not null.
  void (*backward)(const RmsNormBackward<T>& args, float* gweight, std::int64_t begin, std::int64_t end);
};
template <class T>
NormKernels<T> norm_kernels();

/// Rotates by sign * angle, in place.
template <class T>
struct Rope {
  HeadRows<T> x;
  const std::int32_t* positions;
  const float *cos, *sin;  ///< [positions, half]
  std::int64_t heads, half;
  float sign;
};
template <class T>
struct ActivationKernels {
  void (*swiglu_forward)(const T* gate_up, T* act, std::int64_t width, std::int64_t begin, std::int64_t end);
  /// act may be null.
  void (*swiglu_backward)(const T* gate_up, const T* gact, T* ggate_up, T* act, std::int64_t width,
                          std::int64_t begin, std::int64_t end);
  void (*rope)(const Rope<T>& args, std::int64_t begin, std::int64_t end);
  /// to += from
  void (*add)(T* to, const T* from, std::int64_t n);
  /// to += scale * from
  void (*add_to_float)(float* to, const T* from, float scale, std::int64_t n);
};
template <class T>
ActivationKernels<T> activation_kernels();

/// y[t, n] = scale * sum over k of weight[n, k] x[t, k] + (add ? y[t, n] : bias[n]), for few t; rows are those of
/// the weight.
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

template <class T>
struct CrossEntropy {
  T* logits;  ///< [rows, vocab]; overwritten by the gradient if `grad` is not null
  const std::int32_t* targets;
  const float* grad;  ///< of the log-probabilities, or null
  float* logprobs;    ///< or null
  std::int64_t vocab;
};
template <class T>
struct CrossEntropyKernels {
  void (*rows)(const CrossEntropy<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
CrossEntropyKernels<T> cross_entropy_kernels();

template <class T>
struct Dropout {
  const T* in;
  T* out;
  const std::int64_t* sample_ids;
  const std::int32_t* positions;
  PhiloxKey key;
  std::uint32_t threshold;
  float scale;
  std::int64_t width;
  bool add;  ///< out += rather than out =
};
template <class T>
struct DropoutKernels {
  void (*rows)(const Dropout<T>& args, std::int64_t begin, std::int64_t end);
};
template <class T>
DropoutKernels<T> dropout_kernels();

}  // namespace qft::model::ops::cpu
