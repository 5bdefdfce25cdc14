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

}  // namespace qft::ops::generic
