// The short causal convolution of the gated delta net (Qwen3-Next, Qwen3.5): one filter per channel, then SiLU.
#pragma once

#include "qft/ops/attention.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Maximum filter length.
inline constexpr std::int64_t kMaxTaps = 8;

/// y[t, c] = silu(sum over i < K of weight[c, i] x[t - (K - 1) + i, c]), with zero rows before the sequence's start: torch's
/// causal depthwise Conv1d. Sums in fp32 (fp64 for fp64), from the oldest row on, and rounds once.
///   x, y    [T, C], unit stride in the last dimension, any stride of rows. y must not overlap x.
///   weight  [C, K] contiguous, K <= kMaxTaps
void short_convolution_forward(const at::Tensor& x, const at::Tensor& weight, const PackedSequences& sequences,
                               const at::Tensor& y, Workspace& workspace);

/// Computes input gradients from y's gradient. Recomputes the sums.
///   gy, x, gx  [T, C] as above; gx may be gy
///   gweight    [C, K], accumulated; undefined if the weight is frozen
void short_convolution_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight,
                                const PackedSequences& sequences, const at::Tensor& gx, const at::Tensor& gweight,
                                Workspace& workspace);

/// Maximum scratch bytes for forward or backward on an accelerator.
std::int64_t short_convolution_scratch_bytes(std::int64_t tokens, std::int64_t sequences, std::int64_t channels,
                                             at::ScalarType dtype, bool backward);

/// New rows of one sequence, and the last K - 1 rows before them.
struct ConvolvedSequence {
  std::int64_t new_tokens = 1;
  at::Tensor state;  ///< [K - 1, C] contiguous, x's dtype; zero at a sequence's start. Updated to the last K - 1 rows.
};
/// Forward pass over new tokens; x and y hold one sequence after another. Rows are bit-identical to a forward over the whole
/// sequence.
void short_convolution_decode(const at::Tensor& x, const at::Tensor& weight, std::span<const ConvolvedSequence> sequences,
                              const at::Tensor& y, Workspace& workspace);

}  // namespace qft::ops
