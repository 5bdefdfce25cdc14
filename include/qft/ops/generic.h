// The elementwise operations in plain ATen calls, for any device and dtype: what runs where there is no
// kernel of our own, and the oracle of those kernels. Arguments as in the operations of the same names.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/norm.h"
#include "qft/ops/rope.h"

#include <ATen/core/Tensor.h>

namespace qft::ops::generic {

/// The dtype in which operations on `dtype` accumulate and keep statistics: fp64 for fp64, else fp32.
inline at::ScalarType accumulate_dtype(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd,
                      NormWeight form = NormWeight::plain);
void rms_norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight,
                       NormWeight form = NormWeight::plain);

void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act);
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act);

/// x * mask / (1 - p), newly allocated.
at::Tensor dropped(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p);

/// logprobs[i] = log softmax(logits[i])[targets[i]], where logprobs is defined. Then, where grad_logprobs is
/// defined, logits[i] becomes the gradient of sum(grad_logprobs * logprobs).
///   logits [C, V], targets int32 [C], grad_logprobs and logprobs [C]
void cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                        const at::Tensor& logprobs);

/// Whether operations on data of `dtype` run in these calls on `device`: there are kernels of our own neither for fp64, nor for a
/// device whose back end gives none.
bool takes(c10::Device device, at::ScalarType dtype);

/// Of one micro-batch; logit_rows: that are held at a time.
struct Sizes {
  std::int64_t tokens = 0, hidden = 0, intermediate = 0, logit_rows = 0, vocabulary = 0;
};
/// The most bytes of temporary tensors that an operation above needs, but for dropout's.
std::int64_t scratch_bytes(const Sizes& sizes, at::ScalarType dtype);

}  // namespace qft::ops::generic
