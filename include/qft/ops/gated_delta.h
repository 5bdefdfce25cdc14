// The gated delta rule (Yang, Kautz, Hatamizadeh 2024: Gated Delta Networks), as Qwen3-Next and Qwen3.5 have it, over packed
// sequences. A head's state S [Dk, Dv] is zero where a sequence starts; then, token by token,
//   S = exp(g) S,   S += k (beta (v - k^T S))^T,   o = S^T q,
// with q and k divided by sqrt(sum of squares + 1e-6), and q by sqrt(Dk) too. A key head serves value heads / key heads value
// heads that follow one another.
//
// It is computed in chunks of kDeltaChunk tokens, counted from each sequence's start, as triangular systems of a chunk's rows
// (Yang et al. 2024: Parallelizing Linear Transformers with the Delta Rule). With G the sum of g from the chunk's start and
// D_ij = exp(G_i - G_j):
//   u_i = beta_i (v_i - exp(G_i) k_i S - sum over j < i of D_ij (k_i k_j) u_j)
//   o_i = exp(G_i) q_i S + sum over j <= i of D_ij (q_i k_j) u_j
// and the next chunk's S is exp(G_last) S + sum over j of D_last,j k_j u_j^T.
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
  at::Tensor q, k;     ///< [T, key heads, Dk], unit stride in the last dimension, the others as they like
  at::Tensor v;        ///< [T, value heads, Dv], likewise; value heads are a multiple of key heads
  at::Tensor g, beta;  ///< [T, value heads] contiguous, fp64 for fp64 data, else fp32; g <= 0
};

/// States that forward leaves to backward: those at every kDeltaSegment-th token of a sequence past its first. Backward computes
/// the others again, a segment at a time, from them: a state a chunk would be as large as all else that a layer keeps, and none
/// at all would let backward's scratch grow with the longest sequence. 0 where sequences share rows: then backward runs forward
/// again for them.
std::int64_t kept_delta_states(const PackedSequences& sequences);

/// Writes o and the kept states. All tensors have the T rows of the batch (attention.h).
///   out     [T, value heads, Dv] of v's dtype, unit stride in the last dimension
///   states  [kept_delta_states, value heads, Dk, Dv] contiguous, of g's dtype; undefined: none are kept
void gated_delta_forward(const GatedDeltaTensors& in, const PackedSequences& sequences, const at::Tensor& out,
                         const at::Tensor& states, Workspace& workspace);

/// Writes the gradients of all of `in` into `grads`, of the same dtypes.
///   gout    like out
///   states  as forward left them
void gated_delta_backward(const at::Tensor& gout, const GatedDeltaTensors& in, const at::Tensor& states,
                          const PackedSequences& sequences, const GatedDeltaTensors& grads, Workspace& workspace);

/// What computes it.
enum class DeltaPath : std::uint8_t {
  cpu,
  device,  ///< kernels of our own on an accelerator; plain calls where they do not take the data, as in fp64
  plain    ///< plain calls on an accelerator
};

/// Bytes that forward, or backward, takes for its own at most: on the CPU what a chunk needs, and backward the states of a
/// segment, for a key head on each of this process's threads; elsewhere what all heads of so many chunks need as are computed at
/// once, those of two segments by kernels, else of one.
std::int64_t gated_delta_scratch_bytes(const DeltaShape& shape, const PackedSizes& sizes, at::ScalarType dtype, DeltaPath path,
                                       bool backward);

/// Bytes that either and the short convolution before it take besides where sequences of so many tokens share rows.
std::int64_t shared_delta_bytes(const DeltaShape& shape, std::int64_t tokens, at::ScalarType dtype, bool backward);

/// What decoding keeps of a sequence: the state at the last chunk's start, and the rows of the chunk since. The size does not
/// grow with the sequence.
struct GatedDeltaState {
  at::Tensor state;         ///< [value heads, Dk, Dv]
  at::Tensor keys;          ///< [key heads, Dk, kDeltaChunk]: the chunk's k after its norm, a column each
  at::Tensor updates;       ///< [value heads, kDeltaChunk, Dv]: its u
  at::Tensor decay;         ///< [value heads, kDeltaChunk]: its G, in fp64
  std::int64_t tokens = 0;  ///< of the sequence so far

  /// That of an empty sequence; dtype: g's.
  static GatedDeltaState make(const DeltaShape& shape, at::ScalarType dtype, c10::Device device);
  /// Its bytes.
  static std::int64_t bytes(const DeltaShape& shape, at::ScalarType dtype);
};

/// New tokens of a sequence.
struct RecurrentSequence {
  std::int64_t new_tokens = 1;
  GatedDeltaState* state = nullptr;  ///< of the tokens before; left with the new ones
};
/// The forward of new tokens, one sequence after another in `in` and `out`. On the CPU in fp32 and bf16 a row has the same bits
/// as in the whole sequence; elsewhere a product's order may depend on how many rows come at once.
void gated_delta_decode(const GatedDeltaTensors& in, std::span<const RecurrentSequence> sequences, const at::Tensor& out,
                        Workspace& workspace);

}  // namespace qft::ops
