// Token embedding.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y[t] = weight[tokens[t]].
///   tokens  int32 [T] on weight's device, each in [0, V): on the CPU another value throws Error
///   weight  [V, D];  y  [T, D] contiguous
void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y);

/// gweight[tokens[t]] += gy[t], in the order of t on the CPU (bit-identical from run to run).
///   gweight  [V, D], gy's dtype or a wider one
void embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight);

}  // namespace qft::ops
