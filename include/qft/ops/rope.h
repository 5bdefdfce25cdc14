// Rotary position embedding (Su et al. 2021) in the half-rotation layout of transformers (rotate_half).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Cosines and sines of positions: row p is position p, or rows are what stretches say. Angles are fp32 products as in
/// transformers, whatever the data's dtype, and the values are rounded to the data's dtype before they are stored.
struct RopeTable {
  at::Tensor cos, sin;  ///< [rows, head_dim / 2]; fp64 for fp64 data, else fp32

  /// Rows of the positions first, first + 1, ..., at frequencies of their own.
  struct Stretch {
    std::vector<double> inverse_frequencies;  ///< [head_dim / 2], of all stretches of a table alike
    std::int64_t first = 0, count = 0;
  };
  /// The rows of stretches, one after another. Throws Error where there are none.
  static RopeTable build(std::span<const Stretch> stretches, at::ScalarType data_dtype, c10::Device device,
                         double attention_scaling = 1.0);
  /// The same into a table of host memory with as many rows.
  static void write(std::span<const Stretch> stretches, at::ScalarType data_dtype, double attention_scaling, const RopeTable& to);
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
///   positions  int32 [T] on x's device, rows of the table, each < table.max_positions(): on the CPU a larger one throws Error
void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

}  // namespace qft::ops
