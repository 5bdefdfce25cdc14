// Rotary position embedding (Su et al. 2021) in the half-rotation layout of transformers (rotate_half).
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Cosines and sines of every position. Angles are fp32 products as in transformers, whatever the data's dtype, and the values
/// are rounded to the data's dtype before they are stored.
struct RopeTable {
  at::Tensor cos, sin;  ///< [max_positions, head_dim / 2]; fp64 for fp64 data, else fp32

  /// `inverse_frequencies` [head_dim / 2] with any scaling applied (ModelConfig::inverse_frequencies()).
  /// `attention_scaling` multiplies both (1 but for YaRN).
  static RopeTable build(std::span<const double> inverse_frequencies, std::int64_t max_positions, at::ScalarType data_dtype,
                         c10::Device device, double attention_scaling = 1.0);
  std::int64_t max_positions() const { return cos.size(0); }
};

enum class RopeDirection { forward, backward };  ///< backward rotates by the negative angle

/// Rotates every head of x in place.
///   x          [T, heads, head_dim], unit stride in the last dimension, rows and heads strided as they like: the q and k columns
///   of
///              fused qkv rows are one such view (see heads_view in attention.h), the first columns of each head another
///   positions  int32 [T] on x's device, each < table.max_positions(): on the CPU a larger one throws Error
void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

}  // namespace qft::ops
