// Causal self-attention over packed sequences, with grouped query heads.
#pragma once

#include "qft/ops/shared_rows.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Where the sequences of a flat [T] batch begin and end. Sequence s is tokens [cu_seqlens[s], cu_seqlens[s + 1]), each with a
/// row of its own but for those that are shared.
struct PackedSequences {
  std::vector<std::int32_t> cu_seqlens;  ///< of tokens: starts with 0, not decreasing
  std::int32_t max_length = 0;
  at::Tensor device_cu_seqlens;  ///< int32 copy on the device; undefined on the CPU
  SharedRows shared;

  /// Throws Error where `cu_seqlens` is not of that form. `shared`: as SharedRows::build() takes it.
  static PackedSequences build(std::span<const std::int32_t> cu_seqlens, c10::Device device,
                               std::span<const std::int32_t> shared = {});
  std::int64_t num_tokens() const { return cu_seqlens.back(); }
  std::int64_t num_rows() const { return shared.any() ? shared.rows : num_tokens(); }
  std::int64_t num_sequences() const { return static_cast<std::int64_t>(cu_seqlens.size()) - 1; }
};

/// A view [T, heads, head_dim] of columns [first_head * head_dim, ...) of fused rows [T, C].
at::Tensor heads_view(const at::Tensor& rows, std::int64_t first_head, std::int64_t heads, std::int64_t head_dim);

/// q, k, v (or their gradients): [T, heads, head_dim], [T, kv_heads, head_dim] twice. Unit stride in the last
/// dimension, heads head_dim apart, rows strided as they like; heads is a multiple of kv_heads.
struct QkvViews {
  at::Tensor q, k, v;
};
/// The three views of fused rows [T, (heads + 2 kv_heads) * head_dim].
QkvViews split_qkv(const at::Tensor& qkv, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);

/// What attention computes beside its operands.
struct AttentionOptions {
  double scale = 1.0;       ///< of the scores q k^T
  std::int64_t window = 0;  ///< how many tokens a token sees, itself included; 0: all before it
};

/// How attention is computed. `automatic` takes the fastest that the device, dtype and processor allow.
enum class AttentionKernel {
  automatic,
  reference,  ///< explicit matrices per sequence; any device and dtype; O(length^2) memory
  sdpa,       ///< LibTorch's: CPU flash per sequence; CUDA flash or memory-efficient with cu_seqlens
  blocked     ///< our own CPU kernel on brgemm, fp32 and bf16
};
/// What `automatic` stands for on q's device and dtype.
AttentionKernel default_attention_kernel(const at::Tensor& q);

/// Whether attention on a device finds the boundaries of sequences in its memory alone, so that work captured with some of
/// them serves others of the same number and max_length. True on the CPU, where a replay calls anew.
bool attention_can_be_captured(c10::Device device, at::ScalarType dtype, std::int64_t head_dim);

/// What `automatic` runs, as far as memory depends on it; those of an accelerator from the one that takes least.
enum class AttentionPath : std::uint8_t {
  cpu,
  flash,      ///< LibTorch's for half precision and heads of up to 256, on chips that have it
  efficient,  ///< LibTorch's memory-efficient one: pads sums of exponentials and of gradients to the longest sequence
  matrices    ///< explicit ones
};
/// For this dtype and head size on `device`. LibTorch is asked once.
AttentionPath attention_path(c10::Device device, at::ScalarType dtype, std::int64_t head_dim);
/// The same on a chip that has flash attention, where none is there to ask.
AttentionPath usual_attention_path(at::ScalarType dtype, std::int64_t head_dim);

/// out = softmax(scale * q k^T + mask) v per sequence and head. The mask is causal and has the window. A window that no sequence
/// exceeds changes no bit. `blocked`, and flash attention on CUDA devices, skip what lies outside of the window. All tensors have
/// the T rows of the batch: where sequences share some, kernels get copies with a row for each token.
///   out  [T, heads * head_dim], contiguous
///   lse  [heads, T], contiguous: log of the softmax's denominator (natural log, scale applied); fp64 for fp64 data, else fp32.
///        backward needs the one that the same kernel wrote.
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse, Workspace& workspace,
                       AttentionKernel kernel = AttentionKernel::automatic);

/// Writes the gradients of q, k and v into `grads`.
///   gout  like out
void attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& sequences, const AttentionOptions& options, const QkvViews& grads,
                        Workspace& workspace, AttentionKernel kernel = AttentionKernel::automatic);

/// Micro-batches of at most this size.
struct PackedSizes {
  std::int64_t tokens = 0, sequences = 1;
  std::int64_t longest = 0;  ///< tokens of a sequence; 0: not known, taken to be twice the average
  std::int64_t padded = 0;   ///< tokens if each sequence were as long as the longest beside it; 0: not known, of `longest`
  /// Tokens of the sequences, where they share rows, of which there are `tokens` then; 0: they share none.
  std::int64_t expanded = 0;
};
/// Bytes of the workspace that attention takes at most, with this process's number of threads; where LibTorch's kernels run, an
/// estimate of what they take.
std::int64_t attention_scratch_bytes(const PackedSizes& sizes, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                     at::ScalarType dtype, bool backward, AttentionPath path = AttentionPath::cpu);

/// New tokens of one sequence and what they see: the sequence's keys and values so far, the new tokens' own included.
struct CachedSequence {
  std::int64_t new_tokens = 1;
  std::int64_t tokens = 1;  ///< of the cache's rows, those that are filled
  at::Tensor keys, values;  ///< [kv_heads, >= tokens, head_dim], of equal strides
};

/// Attention of new tokens, each the last ones of their sequence, over caches of keys and values. A sequence's rows have
/// the same bits in whatever company they come.
///   q          [T, heads, head_dim], a heads_view: the new tokens of all sequences, one sequence after another
///   out        [T, heads * head_dim], contiguous
void attention_decode(const at::Tensor& q, std::span<const CachedSequence> sequences, const AttentionOptions& options,
                      const at::Tensor& out, Workspace& workspace);

}  // namespace qft::ops
