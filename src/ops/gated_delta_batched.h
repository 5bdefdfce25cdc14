// The gated delta rule in ATen calls over many chunks at a time, for accelerators without kernels, and for fp64: what a chunk's
// rows say of each other is computed for all chunks of a wave at once, and only the states go from chunk to chunk, in three calls
// each.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::batched {

/// As the operations of ops/gated_delta.h.
void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                   const at::Tensor& states);
void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads);

/// Bytes that they allocate at most, for sequences of together so many chunks.
std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t chunks, at::ScalarType dtype, bool backward);

}  // namespace qft::ops::batched
