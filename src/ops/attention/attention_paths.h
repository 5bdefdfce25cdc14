// Implementations behind attention_forward and attention_backward; same arguments, already checked.
#pragma once

#include "qft/ops/attention.h"

namespace qft::ops {

/// Returns the mask of `keys` tokens that the last `queries` of them do not see: bool [queries, keys].
at::Tensor masked_keys(std::int64_t queries, std::int64_t keys, std::int64_t window, c10::Device device);

namespace reference {
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse);
void attention_backward(const AttentionBackward& tensors, const PackedSequences& sequences, const AttentionOptions& options);
}  // namespace reference

namespace sdpa {
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse);
void attention_backward(const AttentionBackward& tensors, const PackedSequences& sequences, const AttentionOptions& options);

/// Head size after padding for these kernels.
std::int64_t aligned_head_dim(std::int64_t head_dim, at::ScalarType dtype);
/// Padded row length of the memory-efficient kernel's log-sum-exp.
std::int64_t padded_lse_length(std::int64_t longest);

/// attention_forward and attention_backward on an accelerator. attention_path() picks the kernel and must not be `matrices`.
void device_attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                              const at::Tensor& out, const at::Tensor& lse);
void device_attention_backward(const AttentionBackward& tensors, const PackedSequences& sequences,
                               const AttentionOptions& options);
}  // namespace sdpa

}  // namespace qft::ops
