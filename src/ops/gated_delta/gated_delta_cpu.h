// The gated delta rule with CPU kernels. A task is one key head of one sequence; its chunks run in order, and tasks are
// independent. A row's bits therefore depend neither on neighbouring sequences, nor on the number of rows per call, nor on the
// number of threads.
#pragma once

#include "qft/ops/gated_delta.h"

namespace qft::ops::kernels {

/// True if the kernels support data with this device and dtype.
bool supports_delta(c10::Device device, at::ScalarType dtype);

/// As the operations in ops/gated_delta.h.
void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out, const at::Tensor& states,
                   Workspace& workspace);
void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace);
void delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                  Workspace& workspace);

/// Returns their workspace bytes with this process's number of threads; longest: tokens of the longest sequence.
std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t longest, bool backward);

}  // namespace qft::ops::kernels
