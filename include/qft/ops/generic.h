// The elementwise operations in plain ATen calls, for any device and dtype. They run if there is no kernel of our own, and tests
// compare the kernels with them. Arguments are as in the operations with the same names.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"
#include "qft/ops/vocabulary.h"

#include <ATen/core/Tensor.h>

namespace qft::ops::generic {

/// Returns the dtype for sums and statistics of operations on `dtype`: fp64 for fp64, else fp32.
inline at::ScalarType accumulate_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                      NormWeight form = NormWeight::plain);
void rms_norm_backward(const NormBackward& tensors);

void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act);
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act);

/// Returns x * mask / (1 - p) as a new tensor.
at::Tensor dropout(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p);

/// logprobs[i] = log softmax(logits[i])[targets[i]], if logprobs is defined. Then, if grad_logprobs is defined, overwrites
/// logits[i] with the gradient of sum(grad_logprobs * logprobs).
///   logits [C, V], targets int32 [C], grad_logprobs and logprobs [C]
void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                        const at::Tensor& logprobs);

/// Statistics of the rows of logits [C, V] of a part of the vocabulary, [3, C]: the maximum, the sum of exp(logit - maximum), and
/// the target's logit, 0 if the target is in another part.
void softmax_statistics(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                        const at::Tensor& statistics);
/// Overwrites the logits [C, V] of a part with the gradient of sum(grad * (target's logit - lse)). lse [C]: the log of the sum of
/// exp(logit) over the whole vocabulary.
void softmax_gradient(const at::Tensor& logits, const at::Tensor& targets, const VocabularyPart& vocabulary,
                      const at::Tensor& grad_logprobs, const at::Tensor& lse);

/// True if operations on `dtype` run as these calls on `device`: for fp64, and on devices without kernels of our own.
bool runs_generic(c10::Device device, at::ScalarType dtype);

/// Sizes for one micro-batch; logit_rows: logit rows that exist at a time.
struct Sizes {
  std::int64_t tokens = 0, hidden = 0, intermediate = 0, logit_rows = 0, vocabulary = 0;
};
/// Maximum temporary bytes for any operation above, except dropout.
std::int64_t scratch_bytes(const Sizes& sizes, at::ScalarType dtype);

}  // namespace qft::ops::generic
