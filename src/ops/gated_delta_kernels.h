// The gated delta rule by the CPU's kernels. A task is a key head of a sequence: chunks follow one another, heads and sequences
// do not know of each other. So a row's bits depend neither on what lies beside its sequence, nor on how many rows come at once,
// nor on the number of threads.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::kernels {

/// Whether they serve data of this device and dtype.
bool serve_delta(c10::Device device, at::ScalarType dtype);

/// As the operations of ops/gated_delta.h.
void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out, const at::Tensor& states,
                   Workspace& workspace);
void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace);
void delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                  Workspace& workspace);

/// Bytes of the workspace that they take, with this process's number of threads; longest: tokens of a sequence.
std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t longest, bool backward);

}  // namespace qft::ops::kernels
