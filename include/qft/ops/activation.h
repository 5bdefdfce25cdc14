// Activations between two products: SwiGLU (Shazeer 2020) over fused rows, the squared ReLU (So et al. 2021, "Primer"), and the
// per-head output gates of attention (Qwen3-Next, Qwen3.5).
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// act = silu(gate) * up, silu(z) = z / (1 + exp(-z)).
///   gate_up  [T, 2 I] contiguous: gate in columns [0, I), up in [I, 2 I)
///   act      [T, I] contiguous
void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act);

/// Computes gate_up's gradient from act's gradient.
///   gact      [T, I]
///   ggate_up  [T, 2 I]; may be gate_up itself
///   act       [T, I] or undefined: recomputed for the down projection's weight gradient, so that forward need not keep act;
///             may be gact itself
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act);

/// act = max(x, 0)^2, rounded once.
///   x, act  [T, I] contiguous
void squared_relu_forward(const at::Tensor& x, const at::Tensor& act);

/// gx = 2 max(x, 0) gact.
///   x, gact, gx  [T, I] contiguous; gx may be x itself
void squared_relu_backward(const at::Tensor& x, const at::Tensor& gact, const at::Tensor& gx);

/// y = x * round(sigmoid(gate)); `round` rounds to x's dtype.
///   x, y  [T, heads * D] contiguous; gate  [T, heads, D], any strides
void head_gate_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y);
/// Computes gradients from y's gradient. Overwrites gy with x's gradient and writes ggate.
void head_gate_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& gate, const at::Tensor& ggate);

/// Scratch bytes for forward or backward for T rows with heads * D = `columns` values.
std::int64_t head_gate_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool backward);

}  // namespace qft::ops
