// The gates of attention's heads (Qwen3-Next, Qwen3.5).
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y = x * round(sigmoid(gate)); `round` is to x's dtype.
///   x, y  [T, heads * D] contiguous; gate  [T, heads, D], any strides
void head_gate_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);
/// Gradients from that of y, which becomes that of x; ggate is written.
void head_gate_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& gate, const at::Tensor& ggate);

/// Bytes that either takes for T rows of heads * D = `columns` values.
std::int64_t head_gate_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool backward);

}  // namespace qft::ops
