// Noise on the embeddings of training (NEFTune, Jain et al. 2023), with the magnitude that transformers gives it.
#pragma once

#include "qft/ops/dropout.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Which rows get noise, and how much of it.
struct NoisyRows {
  RowIdentity identity;
  at::Tensor lengths;  ///< int32 [T]: tokens of the row's sample
};

/// The Philox key of the noise of a step: of no layer's dropout.
constexpr DropoutKey noise_key(std::uint64_t seed, std::uint64_t step) {
  return {seed, step, 0xFFFFFFFF, 0};
}

/// Adds alpha / sqrt(length * width) * u to the first rows of x, as many as `rows` has, u uniform in (-1, 1): of feature f
/// (2 h + 1) / 2^16 - 1 with the half word h that decides feature f in dropout_forward(). A function of the key and the rows'
/// identity, so that packing, ranks and recomputation do not change it.
///   x  [T, width] contiguous, any floating type
void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha);

namespace generic {
/// The same in plain ATen calls, for any device and dtype: the oracle of the kernels.
void add_embedding_noise(const at::Tensor& x, const DropoutKey& key, const NoisyRows& rows, double alpha);
}  // namespace generic

}  // namespace qft::ops
