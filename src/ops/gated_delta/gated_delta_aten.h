// The gated delta rule in plain ATen calls, for any device and dtype; tests compare the kernels with it.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::generic {

/// Processes rows of one sequence that follow `state`. out: o of these rows, or undefined.
void advance_delta(const GatedDeltaTensors& rows, GatedDeltaState& state, const at::Tensor& out);
/// Computes a chunk's gradients. Writes `grads`; overwrites `gstate`, the gradient of the state after the chunk, with the
/// gradient of `state`, the state before the chunk. gstate, state: [value heads, Dk, Dv].
void delta_chunk_backward(const at::Tensor& gout, const GatedDeltaTensors& rows, const at::Tensor& state,
                          const GatedDeltaTensors& grads, const at::Tensor& gstate);

/// Returns 1 / sqrt(sum of squares + 1e-6) per row.
at::Tensor reciprocal_norm(const at::Tensor& x);
/// Returns x's gradient from the gradient of y = scale * x * reciprocal_norm(x).
at::Tensor norm_backward(const at::Tensor& x, const at::Tensor& gy, double scale);
inline at::Tensor transposed(const at::Tensor& x) {
  return x.transpose(-1, -2);
}

}  // namespace qft::ops::generic
