// The gated delta rule in plain ATen calls, for any device and dtype: the oracle of the kernels.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::generic {

/// Rows of one sequence that follow those of `state`. out: o of these rows, or undefined.
void advance_delta(const GatedDeltaTensors& rows, GatedDeltaState& state, const at::Tensor& out);
/// A chunk's gradients: `grads` are written, `gstate`, the gradient of the state after the chunk, becomes that of `state`, the
/// one before it. gstate, state: [value heads, Dk, Dv].
void delta_chunk_backward(const at::Tensor& gout, const GatedDeltaTensors& rows, const at::Tensor& state,
                          const GatedDeltaTensors& grads, const at::Tensor& gstate);

/// 1 / sqrt(sum of squares + 1e-6) of rows.
at::Tensor reciprocal_norm(const at::Tensor& x);
/// The gradient of x from that of y = scale * x * reciprocal_norm(x).
at::Tensor norm_backward(const at::Tensor& x, const at::Tensor& gy, double scale);
inline at::Tensor turned(const at::Tensor& x) {
  return x.transpose(-1, -2);
}

}  // namespace qft::ops::generic
