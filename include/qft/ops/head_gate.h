// The per-head output gates of attention (Qwen3-Next, Qwen3.5).
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y = x * round(sigmoid(gate)); `round` rounds to x's dtype.
///   x, y  [T, heads * D] contiguous; gate  [T, heads, D], any strides
void head_gate_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);
/// Computes gradients from y's gradient. Overwrites gy with x's gradient and writes ggate.
void head_gate_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& gate, const at::Tensor& ggate);

/// Scratch bytes for forward or backward for T rows with heads * D = `columns` values.
std::int64_t head_gate_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool backward);

}  // namespace qft::ops
