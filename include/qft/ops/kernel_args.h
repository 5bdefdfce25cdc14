// Arguments of the CPU and CUDA kernels: plain rows in memory. T is the element type; arithmetic is fp32.
#pragma once

#include "qft/ops/philox.h"

#include <algorithm>
#include <cstdint>

namespace qft::ops {

/// Rows with `width` elements: row r is head r % heads of token r / heads.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t token_stride = 0, head_stride = 0;
  constexpr T* row(std::int64_t token, std::int64_t head) const { return data + token * token_stride + head * head_stride; }
};

template <class T>
struct RmsNormForward {
  HeadRows<const T> x;
  HeadRows<T> y;
  const T* weight;
  float* rstd;
  std::int64_t heads, width;
  double eps;
  float weight_offset;        ///< added to the weight
  bool rounds_before_weight;  ///< round x * rstd to T before multiplying with the weight
};
template <class T>
struct RmsNormBackward {
  HeadRows<const T> gy, x, residual_grad;  ///< residual_grad.data may be null
  HeadRows<T> gx;
  const T* weight;
  const float* rstd;
  std::int64_t heads, width;
  float weight_offset;  ///< as in RmsNormForward
  bool rounds_before_weight;
};

/// Rotates by sign * angle, in place.
template <class T>
struct Rope {
  HeadRows<T> x;
  const std::int32_t* positions;
  const float *cos, *sin;  ///< [max_positions, half]
  std::int64_t heads, half, max_positions;
  float sign;
};

template <class T>
struct SwigluForward {
  const T* gate_up;  ///< [rows, 2 width]
  T* act;            ///< [rows, width]
  std::int64_t width;
};
template <class T>
struct SwigluBackward {
  const T *gate_up, *gact;
  T* ggate_up;
  T* act;  ///< or null
  std::int64_t width;
};

/// DoRA: lower bound for a row's norm. A zero row has no direction; this avoids NaN.
inline constexpr double kDoraMinNorm = 1e-12;

/// norms[i] = || weight[i] + scaling * sum over r of b[i][r] a[r] ||
template <class T>
struct DoraNorms {
  const T *weight, *a, *b;  ///< [rows, width], [rank, width], [rows, rank]
  float* norms;
  std::int64_t width, rank;
  float scaling;
};
/// u[t] = y[t]; y[t] = factor * y[t] + bias
template <class T>
struct DoraForward {
  T *y, *u;
  const float* factor;
  const T* bias;  ///< or null
  std::int64_t y_stride, u_stride, width;
};
/// gu[t] = factor * gy[t]; sums += gy[t] * u[t]
template <class T>
struct DoraBackward {
  const T *gy, *u;
  const float* factor;
  T* gu;
  std::int64_t gy_stride, u_stride, gu_stride, width;
};

template <class T>
struct CrossEntropy {
  T* logits;  ///< [rows, vocab]; overwritten with the gradient if `grad` is not null
  const std::int32_t* targets;
  const float* grad;  ///< gradient of the log-probabilities, or null
  float* logprobs;    ///< or null
  std::int64_t vocab;
};

/// Columns [first, first + count) of logits over `whole` tokens. Writes of each row the maximum, the sum of exp(logit - maximum),
/// and the target's logit (0 if it is not among these columns).
template <class T>
struct SoftmaxStatistics {
  const T* logits;  ///< [rows, count]
  const std::int32_t* targets;
  float *maxima, *sums, *at_targets;  ///< [rows]
  std::int64_t count, first, whole;
};
/// Overwrites such columns with the gradient of grad * (target's logit - lse).
template <class T>
struct SoftmaxGradient {
  T* logits;  ///< [rows, count]
  const std::int32_t* targets;
  const float *grad, *lse;  ///< [rows]; lse: the log of the sum of exp(logit) over all columns of the row
  std::int64_t count, first;
};

/// Features decided by one Philox counter.
inline constexpr int kCounterFeatures = 8;

template <class T>
struct Dropout {
  const T* in;  ///< or null together with out
  T* out;
  const T* g;  ///< or null together with gx, which accumulates
  T* gx;
  const std::int64_t* sample_ids;
  const std::int32_t* positions;
  PhiloxKey key;
  std::uint32_t threshold;
  float scale;
  std::int64_t width;
};

/// Rows of a norm that a thread block handles at once for the weight's gradient.
inline constexpr std::int64_t kNormGradRows = 8;

/// Partial-sum rows for a norm's weight gradient. Depends only on the number of input rows, so that every device
/// sums in the same order.
constexpr std::int64_t norm_weight_grad_parts(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / (8 * kNormGradRows), 1, 128);
}

/// gweight[tokens[t] - first] += gy[t], for tokens in [first, first + rows) of a vocabulary of `whole`.
template <class T, class G>
struct EmbeddingBackward {
  const std::int32_t* tokens;  ///< [count]
  const T* gy;                 ///< [count, width]
  G* gweight;                  ///< [rows, width]
  std::int64_t count, width, rows, first, whole;
};

}  // namespace qft::ops
