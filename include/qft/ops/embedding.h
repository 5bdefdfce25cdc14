// Token embedding.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y[t] = weight[tokens[t]].
///   tokens  int32 [T] on weight's device, each in [0, V); on the CPU, other values throw Error
///   weight  [V, D];  y  [T, D] contiguous
void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y);

/// gweight[tokens[t]] += gy[t]; on the CPU in ascending t (bit-identical between runs).
///   gweight  [V, D], gy's dtype or a wider one
void embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight);

}  // namespace qft::ops
