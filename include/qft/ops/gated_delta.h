// The gated delta rule (Yang, Kautz, Hatamizadeh 2024: Gated Delta Networks), as in Qwen3-Next and Qwen3.5, over packed
// sequences. A head's state S [Dk, Dv] starts each sequence as zero and is updated per token:
//   S = exp(g) S,   S += k (beta (v - k^T S))^T,   o = S^T q,
// with q and k divided by sqrt(sum of squares + 1e-6), and q also by sqrt(Dk). Each key head serves (value heads / key heads)
// consecutive value heads.
//
// The computation runs in chunks of kDeltaChunk tokens, counted from each sequence's start. Each chunk is a triangular system of
// its rows (Yang et al. 2024: Parallelizing Linear Transformers with the Delta Rule). With G the sum of g from the chunk's start
// and D_ij = exp(G_i - G_j):
//   u_i = beta_i (v_i - exp(G_i) k_i S - sum over j < i of D_ij (k_i k_j) u_j)
//   o_i = exp(G_i) q_i S + sum over j <= i of D_ij (q_i k_j) u_j
// The next chunk's S is exp(G_last) S + sum over j of D_last,j k_j u_j^T.
#pragma once

#include "qft/ops/attention.h"
#include "qft/ops/delta_chunks.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Operands, or their gradients.
struct GatedDeltaTensors {
  at::Tensor q, k;     ///< [T, key heads, Dk], unit stride in the last dimension, any strides in the others
  at::Tensor v;        ///< [T, value heads, Dv], likewise; value heads is a multiple of key heads
  at::Tensor g, beta;  ///< [T, value heads] contiguous, fp64 for fp64 data, else fp32; g <= 0
};

/// Number of states that forward keeps for backward: one at every kDeltaSegment-th token of a sequence after its first. Backward
/// recomputes the other states from these, one segment at a time. A state per chunk would take as much memory as everything else
/// that a layer keeps; without any, backward's scratch would grow with the longest sequence. Returns 0 if sequences share rows:
/// backward then runs forward again for them.
std::int64_t kept_delta_states(const PackedSequences& sequences);

/// Writes o and the kept states. All tensors have the batch's T rows (attention.h).
///   out     [T, value heads, Dv] of v's dtype, unit stride in the last dimension
///   states  [kept_delta_states, value heads, Dk, Dv] contiguous, g's dtype; undefined: keep none
void gated_delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                         const at::Tensor& states, Workspace& workspace);

/// Writes the gradients of every tensor in `in` to `grads`, in the same dtypes.
///   gout    like out
///   states  written by forward
void gated_delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                          const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace);

/// The implementation of the gated delta rule.
enum class DeltaPath : std::uint8_t {
  cpu,
  device,  ///< our own accelerator kernels; plain ATen calls for data that they do not support, such as fp64
  plain    ///< plain ATen calls on an accelerator
};

/// Maximum scratch bytes for forward or backward. On the CPU: one chunk of one key head per thread of this process;
/// backward adds the states of a segment. On accelerators: all heads of the chunks that are computed at once, which is two
/// segments with our kernels, otherwise one.
std::int64_t gated_delta_scratch_bytes(const DeltaShape& shape, const BatchShape& sizes, at::ScalarType dtype, DeltaPath path,
                                       bool backward);

/// Extra scratch bytes for forward or backward (with the short convolution before it) if sequences with `tokens` tokens share
/// rows.
std::int64_t shared_delta_bytes(const DeltaShape& shape, std::int64_t tokens, at::ScalarType dtype, bool backward);

/// A sequence's state during decoding: the recurrent state at the start of the last chunk, and that chunk's rows so far. The size
/// does not grow with the sequence.
struct GatedDeltaState {
  at::Tensor state;         ///< [value heads, Dk, Dv]
  at::Tensor keys;          ///< [key heads, Dk, kDeltaChunk]: the chunk's normalised k, one per column
  at::Tensor updates;       ///< [value heads, kDeltaChunk, Dv]: the chunk's u
  at::Tensor decay;         ///< [value heads, kDeltaChunk]: the chunk's G, in fp64
  std::int64_t tokens = 0;  ///< length of the sequence so far

  /// Returns the state of an empty sequence; dtype: g's.
  static GatedDeltaState make(const DeltaShape& shape, at::ScalarType dtype, c10::Device device);
  /// Returns its size in bytes.
  static std::int64_t bytes(const DeltaShape& shape, at::ScalarType dtype);
};

/// New tokens of one sequence.
struct RecurrentSequence {
  std::int64_t new_tokens = 1;
  GatedDeltaState* state = nullptr;  ///< state before the new tokens; updated to include them
};
/// Forward pass over new tokens; `in` and `out` hold one sequence after another. On the CPU, fp32 and bf16 rows are bit-identical
/// to a forward over the whole sequence; elsewhere the summation order may depend on the number of rows in a call.
void gated_delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                        Workspace& workspace);

}  // namespace qft::ops
