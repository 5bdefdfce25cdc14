// The implementations behind attention_forward and attention_backward; arguments as there, already checked.
#pragma once

#include "qft/ops/attention.h"

namespace qft::ops {

/// Which of `keys` tokens the last `queries` of them do not see: bool [queries, keys].
at::Tensor hidden_keys(std::int64_t queries, std::int64_t keys, std::int64_t window, c10::Device device);

namespace reference {
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse);
void attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& sequences, const AttentionOptions& options, const QkvViews& grads);
}  // namespace reference

namespace sdpa {
void attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                       const at::Tensor& out, const at::Tensor& lse);
void attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                        const PackedSequences& sequences, const AttentionOptions& options, const QkvViews& grads);
/// Whether LibTorch would run flash (or cuDNN, which needs no less) attention on this chip, dtype and head size. If not, the
/// memory-efficient kernel runs, whose sums of exponentials are copied sequence by sequence.
bool device_attention_is_flash(const QkvViews& in);
/// The same on an accelerator: flash attention for half precision on chips that have it, else memory-efficient.
void device_attention_forward(const QkvViews& in, const PackedSequences& sequences, const AttentionOptions& options,
                              const at::Tensor& out, const at::Tensor& lse);
void device_attention_backward(const at::Tensor& gout, const QkvViews& in, const at::Tensor& out, const at::Tensor& lse,
                               const PackedSequences& sequences, const AttentionOptions& options, const QkvViews& grads);
}  // namespace sdpa

}  // namespace qft::ops
