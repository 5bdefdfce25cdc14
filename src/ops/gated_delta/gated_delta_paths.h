// The paths of the gated delta rule (ops/gated_delta.h) beside the kernels of devices.
#pragma once

#include "qft/ops/gated_delta.h"

// The gated delta rule with CPU kernels. A task is one key head of one sequence; its chunks run in order, and tasks are
// independent. A row's bits therefore depend neither on neighbouring sequences, nor on the number of rows per call, nor on the
// number of threads.
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

// The gated delta rule in ATen calls over many chunks at a time, for accelerators without kernels, and for fp64. Computes the
// products within chunks for a whole wave at once; only the states go from chunk to chunk, with three calls per chunk.
namespace qft::ops::batched {

/// As the operations in ops/gated_delta.h.
void delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                   const at::Tensor& states);
void delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                    const PackedSequences& sequences, const GatedDeltaTensors& grads);

/// Maximum bytes that they allocate, for sequences with `chunks` chunks in total.
std::int64_t delta_scratch_bytes(const DeltaShape& shape, std::int64_t chunks, at::ScalarType dtype, bool backward);

}  // namespace qft::ops::batched

// The gated delta rule in plain ATen calls, for any device and dtype; tests compare the kernels with it.
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
