// The gated delta rule in ATen calls over many chunks at a time, for data and devices without kernels, such as fp64. Computes the
// products within chunks for a whole wave at once; only the states go from chunk to chunk, with three calls per chunk.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::batched {

/// As the operations in ops/gated_delta.h.
void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                   const at::Tensor& states);
void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads);

/// Maximum bytes that they allocate, for sequences with `chunks` chunks in total.
std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t chunks, at::ScalarType dtype, bool backward);

}  // namespace qft::ops::batched
