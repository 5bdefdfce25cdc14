// The squared ReLU (So et al. 2021, "Primer"): act = max(x, 0)^2.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// act = max(x, 0)^2, rounded once.
///   x, act  [T, I] contiguous
void squared_relu_forward(const at::Tensor& x, const at::Tensor& act);

/// gx = 2 max(x, 0) gact.
///   x, gact, gx  [T, I] contiguous; gx may be x itself
void squared_relu_backward(const at::Tensor& x, const at::Tensor& gact, const at::Tensor& gx);

}  // namespace qft::ops
