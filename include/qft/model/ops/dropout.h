// Dropout whose mask is a function of what is dropped, not of when: the same under recomputation, after a
// resume, and for any packing and number of ranks.
#pragma once

#include "qft/model/ops/philox.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::model::ops {

/// What a mask depends on besides the row's own identity and the feature.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< optimizer step
  std::uint32_t layer = 0;
  std::uint32_t site = 0;  ///< which module of the layer

  /// The Philox key of this (seed, step, layer, site).
  PhiloxKey philox_key() const;
};

/// The identity of each row of a flat [T] batch, on the data's device. Undefined positions and ids mean no
/// dropout.
struct RowIdentity {
  at::Tensor sample_ids;  ///< int64 [T]: number of the sample in the whole (global) data order
  at::Tensor positions;   ///< int32 [T]: position in that sample
};

/// A word below this drops its feature: p * 2^32, rounded.
constexpr std::uint32_t dropout_threshold(double p) {
  const double scaled = p * 4294967296.0 + 0.5;
  return scaled < 4294967295.0 ? static_cast<std::uint32_t>(scaled) : 0xFFFFFFFF;
}

/// out = x * mask / (1 - p). Feature f of row t is kept iff word f % 4 of
/// philox({f / 4, position, sample id low, sample id high}, key) >= dropout_threshold(p).
///   x, out  [T, K] contiguous; out may be x.   0 <= p < 1
void dropout_forward(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p,
                     const at::Tensor& out);

/// out += g * mask / (1 - p) with the mask of dropout_forward: its backward, accumulating.
void dropout_backward_add(const at::Tensor& g, const DropoutKey& key, const RowIdentity& rows, double p,
                          const at::Tensor& out);

}  // namespace qft::model::ops
