// The gated delta rule in ATen calls, a chunk at a time, for decoding without kernels.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::generic {

/// Processes rows of one sequence that follow `state`. out: o of these rows, or undefined.
void advance_delta(const GatedDeltaTensors& rows, GatedDeltaState& state, const at::Tensor& out);

/// Returns 1 / sqrt(sum of squares + 1e-6) per row.
at::Tensor reciprocal_norm(const at::Tensor& x);
inline at::Tensor transposed(const at::Tensor& x) {
  return x.transpose(-1, -2);
}

}  // namespace qft::ops::generic
