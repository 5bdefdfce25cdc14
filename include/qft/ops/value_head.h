// A head on whole sequences (reward model or classifier): computes numbers from one hidden row per sequence, summed in fp32 (fp64
// for fp64 data).
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// values[s] = weight y[s] + bias.
///   y       [S, D]
///   weight  [N, D]; bias [N], or undefined for none
///   values  [S * N], a sequence's numbers side by side; fp64 for fp64 data, else fp32
void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values);

/// Computes gradients from the values' gradients.
///   grad_values     [S * N], dtype of the values
///   gy              [S, D]: written
///   gweight, gbias  [N, D], [N]: accumulated, the data's dtype or a wider one; undefined if frozen or absent
void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias);

}  // namespace qft::ops
