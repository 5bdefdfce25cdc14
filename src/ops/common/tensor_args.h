// Converts tensors to kernel arguments.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/kernel_args.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"
#include "qft/ops/vocabulary.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

template <class T>
T* data(const at::Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) : nullptr;
}
template <class T>
const T* const_data(const at::Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.const_data_ptr()) : nullptr;
}

/// Returns rows [T, D] (one head) or [T, heads, D] of a tensor with unit stride in the last dimension.
template <class T>
HeadRows<T> head_rows(const at::Tensor& t) {
  if (!t.defined()) return {};
  return {static_cast<T*>(const_cast<void*>(t.const_data_ptr())), t.stride(0), t.dim() == 3 ? t.stride(1) : 0};
}
inline std::int64_t heads_of(const at::Tensor& x) {
  return x.dim() == 3 ? x.size(1) : 1;
}

inline float weight_offset_of(NormWeight form) {
  return form == NormWeight::zero_centred ? 1.0F : 0.0F;
}

template <class T>
RmsNormForward<T> norm_forward_args(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                                    const at::Tensor& rstd, NormWeight form = NormWeight::plain) {
  return {head_rows<const T>(x),
          head_rows<T>(y),
          const_data<T>(weight),
          rstd.data_ptr<float>(),
          heads_of(x),
          x.size(-1),
          eps,
          weight_offset_of(form),
          form == NormWeight::plain};
}

template <class T>
RmsNormBackward<T> norm_backward_args(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                                      const at::Tensor& residual_grad, const at::Tensor& gx,
                                      NormWeight form = NormWeight::plain) {
  return {head_rows<const T>(gy),
          head_rows<const T>(x),
          head_rows<const T>(residual_grad),
          head_rows<T>(gx),
          const_data<T>(weight),
          rstd.const_data_ptr<float>(),
          heads_of(x),
          x.size(-1),
          weight_offset_of(form),
          form == NormWeight::plain};
}

template <class T>
Rope<T> rope_args(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  return {head_rows<T>(x),
          positions.const_data_ptr<std::int32_t>(),
          table.cos.const_data_ptr<float>(),
          table.sin.const_data_ptr<float>(),
          x.size(1),
          table.cos.size(1),
          table.max_positions(),
          direction == RopeDirection::forward ? 1.0F : -1.0F};
}

template <class T>
SwigluForward<T> swiglu_forward_args(const at::Tensor& gate_up, const at::Tensor& act) {
  return {const_data<T>(gate_up), data<T>(act), act.size(1)};
}

template <class T>
SwigluBackward<T> swiglu_backward_args(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up,
                                       const at::Tensor& act) {
  return {const_data<T>(gate_up), const_data<T>(gact), data<T>(ggate_up), data<T>(act), gact.size(1)};
}

template <class T>
CrossEntropy<T> cross_entropy_args(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                                   const at::Tensor& logprobs) {
  return {data<T>(logits), const_data<std::int32_t>(targets), const_data<float>(grad_logprobs), data<float>(logprobs),
          logits.size(1)};
}

/// `statistics`: [3, rows], contiguous: maxima, sums, targets' logits.
template <class T>
SoftmaxStatistics<T> softmax_statistics_args(const at::Tensor& logits, const at::Tensor& targets,
                                             const VocabularyPart& vocabulary, const at::Tensor& statistics) {
  float* const rows = statistics.data_ptr<float>();
  const std::int64_t n = logits.size(0);
  return {const_data<T>(logits), const_data<std::int32_t>(targets), rows, rows + n, rows + 2 * n, logits.size(1),
          vocabulary.first,      vocabulary.tokens(logits.size(1))};
}
template <class T>
SoftmaxGradient<T> softmax_gradient_args(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                                         const at::Tensor& grad_logprobs, const at::Tensor& lse) {
  return {data<T>(logits),
          const_data<std::int32_t>(targets),
          const_data<float>(grad_logprobs),
          const_data<float>(lse),
          logits.size(1),
          vocabulary.first};
}

template <class T>
Dropout<T> dropout_args(const DropoutBackward& t, const DropoutKey& key, const RowIdentity& rows, double p) {
  return {const_data<T>(t.x),
          data<T>(t.out),
          const_data<T>(t.g),
          data<T>(t.gx),
          rows.sample_ids.const_data_ptr<std::int64_t>(),
          rows.positions.const_data_ptr<std::int32_t>(),
          key.philox_key(),
          dropout_threshold(p),
          static_cast<float>(1.0 / (1.0 - p)),
          t.any().size(1)};
}

template <class T, class G>
EmbeddingBackward<T, G> embedding_backward_args(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight,
                                                const VocabularyPart& vocabulary = {}) {
  const std::int64_t rows = gweight.size(0);
  return {const_data<std::int32_t>(tokens), const_data<T>(gy), data<G>(gweight), gy.size(0), gy.size(1), rows, vocabulary.first,
          vocabulary.tokens(rows)};
}

}  // namespace qft::ops
