// Dropout with masks that depend on the data's identity, not on the time of the call: the same after recomputation, after a
// resume, and for any packing and number of ranks.
#pragma once

#include "qft/ops/philox.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Everything that a mask depends on besides the row's identity.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< optimizer step
  std::uint32_t layer = 0;
  std::uint32_t site = 0;  ///< module within the layer
  /// Number of the first feature of x, if x has only some consecutive features of each row.
  std::int64_t first_feature = 0;

  /// Returns the Philox key of this (seed, step, layer, site).
  constexpr PhiloxKey philox_key() const {
    const PhiloxCounter words = philox({static_cast<std::uint32_t>(step), static_cast<std::uint32_t>(step >> 32), layer, site},
                                       {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    return {words[0], words[1]};
  }
};

/// Identity of each row in a flat [T] batch, on the data's device. Undefined positions and ids disable dropout.
struct RowIdentity {
  at::Tensor sample_ids;  ///< int64 [T]: the sample's index in the global data order
  at::Tensor positions;   ///< int32 [T]: position within the sample
};

/// Half words below this threshold drop their feature. Returns p * 2^16, rounded; any p > 0 drops some features and none drops
/// all.
constexpr std::uint32_t dropout_threshold(double p) {
  const double scaled = p * 65536.0 + 0.5;
  if (scaled >= 65535.0) return 0xFFFF;
  return scaled < 1.0 && p > 0.0 ? 1 : static_cast<std::uint32_t>(scaled);
}

/// out = x * mask / (1 - p). Feature f, counted from the key's first_feature on, of row t is kept iff half word f % 8 (each word
/// has two, the low one first) of philox({f / 8, position, sample id low, sample id high}, key) >= dropout_threshold(p).
///   x, out  [T, K] contiguous; out may be x.   0 <= p < 1
void dropout_forward(const at::Tensor& x, const DropoutKey& key, const RowIdentity& rows, double p, const at::Tensor& out);

/// Operands of backward for the mask of dropout_forward: recomputes its output, and adds gx += g * mask / (1 - p).
struct DropoutBackward {
  at::Tensor x, out;  ///< [T, K] contiguous, or both undefined
  at::Tensor g, gx;   ///< likewise

  /// Returns x, or g if x is undefined.
  const at::Tensor& any() const { return x.defined() ? x : g; }
};
void dropout_backward(const DropoutBackward& tensors, const DropoutKey& key, const RowIdentity& rows, double p);

}  // namespace qft::ops
