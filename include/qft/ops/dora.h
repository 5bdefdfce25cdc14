// DoRA (Liu et al. 2024; PEFT's DoraLinearLayer) for a linear with LoRA: divides each row of W + scaling B A by its norm and
// multiplies it with a trained magnitude. Gradients treat the norm as a constant (section 4.3).
#pragma once

#include "qft/ops/linear.h"
#include "qft/ops/workspace.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// norms[i] = || weight[i] + scaling (b a)[i] ||, at least kDoraMinNorm, summed in fp32 (fp64 for fp64).
///   weight [rows, K], a [r, K], b [rows, r]; norms [rows] fp32, or fp64 for fp64
void dora_norms(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scaling, const at::Tensor& norms);

/// factors = magnitudes / norms, with norms first rounded to the magnitudes' dtype: magnitudes that were set to these norms give
/// exactly 1 in any dtype.
///   magnitudes [rows]; norms, factors [rows], fp32, or fp64 for fp64
void dora_factors(const at::Tensor& magnitudes, const at::Tensor& norms, const at::Tensor& factors);

/// Maximum extra bytes that dora_norms allocates for rows of K elements.
std::int64_t dora_norm_bytes(std::int64_t columns);

/// Workspace bytes that forward and backward need in addition to LoRA's, for a projection group with N rows, including dropout.
std::int64_t dora_scratch_bytes(std::int64_t tokens, std::int64_t rows, at::ScalarType compute, bool dropout, bool on_cpu);

// linear_forward and linear_backward call these if the parts of `w` have factors.
//   without dropout  y = factor * (x W^T + LoRA) + bias
//   with dropout     y = x W^T + bias + (factor - 1) * dropout(x) W^T + factor * LoRA, a second product with each part's weight
void dora_forward(const at::Tensor& x, const LinearWeights& w, const LoraDropout& dropout, const at::Tensor& y,
                  const at::Tensor& saved, Workspace& workspace);
void dora_backward(const LinearBackward& tensors, const LinearWeights& w, const LoraDropout& dropout, const LinearGrads& grads,
                   Workspace& workspace);

}  // namespace qft::ops
