// Causal self-attention over packed sequences, with grouped query heads.
#pragma once

#include "qft/core/batch_shape.h"
#include "qft/ops/shared_rows.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Boundaries of the sequences in a flat [T] batch. Sequence s holds tokens [cu_seqlens[s], cu_seqlens[s + 1]). Each token has
/// its own row, except for tokens that share one (`shared`).
struct PackedSequences {
  std::vector<std::int32_t> cu_seqlens;  ///< token offsets: starts with 0, never decreases
  std::int32_t max_length = 0;
  at::Tensor device_cu_seqlens;  ///< int32 copy on the device; undefined on the CPU
  SharedRows shared;

  /// Throws Error if `cu_seqlens` violates this form. `shared`: the argument of SharedRows::build().
  static PackedSequences build(std::span<const std::int32_t> cu_seqlens, c10::Device device,
                               std::span<const std::int32_t> shared = {});
  std::int64_t num_tokens() const { return cu_seqlens.back(); }
  std::int64_t num_rows() const { return shared.any() ? shared.rows : num_tokens(); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
};

/// Returns a view [T, heads, head_dim] on columns [first_head * head_dim, ...) of fused rows [T, C].
at::Tensor heads_view(const at::Tensor& rows, std::int64_t first_head, std::int64_t heads, std::int64_t head_dim);

/// q [T, heads, head_dim] and k, v [T, kv_heads, head_dim], or their gradients. The last dimension has unit stride, heads lie
/// head_dim apart, rows may have any stride; heads is a multiple of kv_heads.
struct QkvViews {
  at::Tensor q, k, v;
};
/// Returns the three views of fused rows [T, (heads + 2 kv_heads) * head_dim].
QkvViews split_qkv(const at::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

/// Parameters of attention besides its operands.
struct AttentionOptions {
  double scale = 1.0;       ///< multiplies the scores q k^T
  std::int64_t window = 0;  ///< number of tokens that a token attends to, including itself; 0: all previous tokens
};

/// The implementation of attention. `automatic` picks the fastest for the device, dtype and processor.
enum class AttentionKernel {
  automatic,
  reference,  ///< explicit matrices per sequence; any device and dtype; O(length^2) memory
  sdpa,       ///< LibTorch's: CPU flash per sequence; CUDA flash or memory-efficient with cu_seqlens
  blocked     ///< our own CPU kernel on brgemm, fp32 and bf16
};
/// Returns the kernel that `automatic` picks for q's device and dtype.
AttentionKernel default_attention_kernel(const at::Tensor& q);

/// True if attention reads sequence boundaries only from device memory. A captured graph can then be replayed for other batches
/// with the same number of sequences and the same max_length. Also true on the CPU, because a replay there calls the operation
/// again.
bool attention_can_be_captured(c10::Device device, at::ScalarType dtype, std::int64_t head_dim);

/// The implementation behind `automatic`, as far as it determines memory use. Accelerator paths are in ascending order of memory.
enum class AttentionPath : std::uint8_t {
  cpu,
  flash,      ///< LibTorch's flash attention: half precision, head sizes up to 256, only on chips that support it
  efficient,  ///< LibTorch's memory-efficient attention; pads softmax sums and gradient sums to the longest sequence
  matrices    ///< explicit score matrices
};
/// Returns the path for this dtype and head size on `device`. Asks LibTorch once and caches the answer.
AttentionPath attention_path(c10::Device device, at::ScalarType dtype, std::int64_t head_dim);
/// Assumes a chip with flash attention; used to plan without a GPU.
AttentionPath planned_attention_path(at::ScalarType dtype, std::int64_t head_dim);

/// out = softmax(scale * q k^T + mask) v per sequence and head. The mask is causal and applies the window. Results are
/// bit-identical without a window if no sequence is longer than the window. `blocked`, and flash attention on CUDA devices, skip
/// keys outside the window. All tensors have the batch's T rows; if sequences share rows, the kernels get copies with one row per
/// token.
///   out  [T, heads * head_dim], contiguous
///   lse  [heads, T], contiguous: log of the softmax's denominator (natural log, scale applied); fp64 for fp64 data, else fp32.
///        backward needs the lse written by the same kernel.
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse, Workspace& workspace,
                       AttentionKernel kernel = AttentionKernel::automatic);

struct AttentionBackward {
  at::Tensor gout;      ///< like out
  QkvViews in;          ///< the forward's
  at::Tensor out, lse;  ///< the forward's results
  QkvViews grads;       ///< like in
};
/// Writes the gradients of q, k and v into `grads`.
void attention_backward(const AttentionBackward& tensors, const PackedSequences& sequences, const AttentionOptions& options,
                        Workspace& workspace, AttentionKernel kernel = AttentionKernel::automatic);

/// Maximum workspace bytes for attention with this process's number of threads. For LibTorch's kernels this is an estimate.
std::int64_t attention_scratch_bytes(const BatchShape& sizes, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                     at::ScalarType dtype, bool backward, AttentionPath path = AttentionPath::cpu);

/// A sequence's new tokens, with the keys and values of the whole sequence so far, including the new tokens.
struct CachedSequence {
  std::int64_t new_tokens = 1;
  std::int64_t tokens = 1;  ///< filled rows of the cache
  at::Tensor keys, values;  ///< [kv_heads, >= tokens, head_dim], both with equal strides
};

/// Attention of new tokens over cached keys and values. The new tokens are the last ones of their sequences. Batch-invariant:
/// results do not depend on the other sequences in the batch.
///   q          [T, heads, head_dim], a heads_view: the new tokens of all sequences, one sequence after another
///   out        [T, heads * head_dim], contiguous
void attention_decode(const at::Tensor& q, std::span<const CachedSequence> sequences, const AttentionOptions& options,
                      const at::Tensor& out, Workspace& workspace);

}  // namespace qft::ops
