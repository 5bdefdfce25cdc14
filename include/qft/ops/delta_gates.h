// The gates of the gated delta net (Yang et al. 2024, as in Qwen3-Next): the state's decay rate and the write strength.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Inputs of the gates.
struct DeltaGateInputs {
  at::Tensor a, b;     ///< [T, H], any strides
  at::Tensor a_log;    ///< [H]
  at::Tensor dt_bias;  ///< [H]
};

/// g = -exp(a_log) * softplus(a + dt_bias), beta = sigmoid(b).
///   g, beta  [T, H] contiguous; fp64 for fp64 data, else fp32: beta is not rounded to b's dtype
void delta_gates_forward(const DeltaGateInputs& in, const at::Tensor& g, const at::Tensor& beta);

/// Computes input gradients from the gradients of g and beta.
///   gg, gbeta           [T, H] contiguous, like g and beta
///   grads.a, grads.b    [T, H] in a's dtype, overwritten; may be a and b themselves
///   grads.a_log, .dt_bias  [H], accumulated; undefined if frozen
void delta_gates_backward(const at::Tensor& gg, const at::Tensor& gbeta, const DeltaGateInputs& in, const DeltaGateInputs& grads);

/// Maximum scratch bytes for forward or backward on devices, which run it as plain ATen calls.
std::int64_t delta_gates_scratch_bytes(std::int64_t tokens, std::int64_t heads, at::ScalarType dtype, bool backward);

}  // namespace qft::ops
