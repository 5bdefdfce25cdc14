// Token embedding.
#pragma once

#include "qft/ops/dropout.h"
#include "qft/ops/vocabulary.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// y[t] = weight[tokens[t]].
///   tokens  int32 [T] on weight's device, each in the whole vocabulary; on the CPU, other values throw Error
///   weight  [V, D];  y  [T, D] contiguous
/// With a part of the vocabulary the rows of other parts' tokens are zero; the caller adds y up over the ranks.
void embedding_forward(const at::Tensor& tokens, const at::Tensor& weight, const at::Tensor& y,
                       const VocabularyPart& vocabulary = {});

/// gweight[tokens[t]] += gy[t], for tokens whose row gweight has; on the CPU in ascending t (bit-identical between runs).
///   gweight  [V, D], gy's dtype or a wider one
void embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight,
                        const VocabularyPart& vocabulary = {});

// NEFTune: noise on the embeddings during training (Jain et al. 2023), with the magnitude that transformers uses.

/// The rows that get noise, and the lengths that scale the noise.
struct NoisyRows {
  RowIdentity identity;
  at::Tensor lengths;  ///< int32 [T]: tokens in the row's sample
};

/// Returns the Philox key of a step's noise. No layer's dropout uses this key.
constexpr DropoutKey noise_key(std::uint64_t seed, std::uint64_t step) {
  return {seed, step, 0xFFFFFFFF, 0};
}

/// Adds alpha / sqrt(length * width) * u to the first rows of x (one per entry of `rows`). u is uniform in (-1, 1): feature f
/// gets (2 h + 1) / 2^16 - 1 with the half word h that decides feature f in dropout_forward(). The noise depends only on the key
/// and the rows' identity; packing, ranks and recomputation do not change it.
///   x  [T, width] contiguous, any floating type
void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha);

namespace generic {
/// Reference implementation in plain ATen calls, for any device and dtype; tests compare the kernels with it.
void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha);
}  // namespace generic

}  // namespace qft::ops
