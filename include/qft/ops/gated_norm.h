// The gated norm on the gated delta net's output (transformers' Qwen3NextRMSNormGated).
#pragma once

#include "qft/ops/workspace.h"

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y = weight * round(x * rstd) * silu(z), rstd = 1 / sqrt(mean(x^2) + eps) over the last dimension; `round` rounds to x's dtype.
///   x, z, y  [T, heads, D], unit stride in the last dimension, any strides in the others; y may be x or z
///   weight   [D]
///   rstd     [T, heads], contiguous; fp64 for fp64 data, else fp32
void gated_norm_forward(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight, double eps, const at::Tensor& y,
                        const at::Tensor& rstd);

struct GatedNormBackward {
  at::Tensor gy, x, z, weight, rstd;  ///< all but gy are the forward's
  at::Tensor gx, gz;                  ///< like x; gx may be gy, gz may be z
  at::Tensor gweight = {};            ///< [D], accumulated, the weight's dtype or a wider one; undefined if the weight is frozen
};
/// Computes input gradients from y's gradient.
void gated_norm_backward(const GatedNormBackward& tensors, Workspace& workspace);

/// Maximum scratch bytes for forward or backward for T rows with heads * D = `columns` values.
std::int64_t gated_norm_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool on_cpu,
                                      bool backward);

}  // namespace qft::ops
