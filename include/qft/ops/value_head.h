// A head of whole sequences, a reward model's or a classifier's: numbers of each from one hidden row, summed in fp32 (fp64 for
// fp64 data).
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// values[s] = weight y[s] + bias.
///   y       [S, D]
///   weight  [N, D]; bias [N], or undefined: there is none
///   values  [S * N], those of a sequence side by side; fp64 for fp64 data, else fp32
void value_head_forward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& values);

/// Gradients from those of the values.
///   grad_values     [S * N], dtype of the values
///   gy              [S, D]: written
///   gweight, gbias  [N, D], [N]: accumulated, the data's dtype or a wider one; undefined: frozen, or none
void value_head_backward(const at::Tensor& y, const at::Tensor& weight, const at::Tensor& grad_values, const at::Tensor& gy,
                         const at::Tensor& gweight, const at::Tensor& gbias);

}  // namespace qft::ops
