// SwiGLU (Shazeer 2020): act = silu(gate) * up over fused rows.
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

}  // namespace qft::ops
