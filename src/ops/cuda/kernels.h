// Operations by kernels of our own on a CUDA device, queued on the current stream: no allocation, no wait. Each returns
// false, and does nothing, where there is no kernel for the data: not on such a device, fp64, a CPU build. Arguments as in
// the operations of the same names.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/rope.h"
#include "qft/ops/workspace.h"

#include <ATen/core/Tensor.h>

namespace qft::ops::cuda {

bool rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y, const at::Tensor& rstd);
bool rms_norm_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& rstd,
                       const at::Tensor& residual_grad, const at::Tensor& gx, const at::Tensor& gweight, Workspace& workspace);

bool rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

bool swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act);
bool swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act);

bool dropout(const DropoutBackward& tensors, const DropoutKey& key, const RowIdentity& rows, double p);

bool cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                        const at::Tensor& logprobs);

bool embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight);

}  // namespace qft::ops::cuda
