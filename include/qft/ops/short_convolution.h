// The short causal convolution of the gated delta net (Qwen3-Next, Qwen3.5): one filter a channel, then SiLU.
#pragma once

#include "qft/ops/attention.h"
#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Taps that a filter may have at most.
inline constexpr std::int64_t kMostTaps = 8;

/// y[t, c] = silu(sum over i < K of weight[c, i] x[t - (K - 1) + i, c]), where rows before the sequence's first are zero:
/// torch's causal depthwise Conv1d. The sum is in fp32 (fp64 for fp64), from the oldest row on, and rounded once.
///   x, y    [T, C], unit stride in the last dimension; rows strided as they like. y must not overlap x.
///   weight  [C, K] contiguous, K <= kMostTaps
void short_convolution_forward(const at::Tensor& x, const at::Tensor& weight, const PackedSequences& sequences,
                               const at::Tensor& y, Workspace& workspace);

/// Gradients from that of y; the sums are computed again.
///   gy, x, gx  [T, C] as above; gx may be gy
///   gweight    [C, K], added to; undefined where the weight is frozen
void short_convolution_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& weight,
                                const PackedSequences& sequences, const at::Tensor& gx, const at::Tensor& gweight,
                                Workspace& workspace);

/// Bytes that either takes on an accelerator at most.
std::int64_t short_convolution_scratch_bytes(std::int64_t tokens, std::int64_t sequences, std::int64_t channels,
                                             at::ScalarType dtype, bool backward);

/// New rows of one sequence and the last K - 1 rows before them.
struct ConvolvedSequence {
  std::int64_t new_tokens = 1;
  at::Tensor state;  ///< [K - 1, C] contiguous, x's dtype; zero where a sequence starts. Left with the last K - 1 rows.
};
/// The forward of new tokens, one sequence after another in x and y. A row has the same bits as in the whole sequence.
void short_convolution_decode(const at::Tensor& x, const at::Tensor& weight, std::span<const ConvolvedSequence> sequences,
                              const at::Tensor& y, Workspace& workspace);

}  // namespace qft::ops
