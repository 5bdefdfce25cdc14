// Rotary position embedding (Su et al. 2021) in the half-rotation layout of transformers (rotate_half).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Cosines and sines by position. Row p is position p, unless the table was built from ranges. Angles are fp32 products as in
/// transformers, for any data dtype; values are rounded to the data's dtype before they are stored.
struct RopeTable {
  at::Tensor cos, sin;  ///< [rows, head_dim / 2]; fp64 for fp64 data, else fp32

  /// Rows for positions first, first + 1, ... with their own frequencies.
  struct PositionRange {
    std::vector<double> inverse_frequencies;  ///< [head_dim / 2], the same length in all ranges of a table
    std::int64_t first = 0, count = 0;
  };
  /// Builds the rows of the ranges, one after another. Throws Error if there are none.
  static RopeTable build(std::span<const PositionRange> ranges, at::ScalarType data_dtype, c10::Device device,
                         double attention_scaling = 1.0);
  /// Writes the same rows to an existing table in host memory, which must have as many rows.
  static void write(std::span<const PositionRange> ranges, at::ScalarType data_dtype, double attention_scaling,
                    const RopeTable& to);
  /// `inverse_frequencies` [head_dim / 2], with any scaling applied (ModelConfig::inverse_frequencies()). `attention_scaling`
  /// multiplies cosines and sines (1 except for YaRN).
  static RopeTable build(std::span<const double> inverse_frequencies, std::int64_t max_positions, at::ScalarType data_dtype,
                         c10::Device device, double attention_scaling = 1.0);
  std::int64_t max_positions() const { return cos.size(0); }
};

enum class RopeDirection { forward, backward };  ///< backward rotates by the negative angle

/// Rotates every head of x in place.
///   x          [T, heads, head_dim], unit stride in the last dimension, any strides of rows and heads: for example the q and k
///              columns of fused qkv rows (heads_view in attention.h), or the first columns of each head
///   positions  int32 [T] on x's device: table rows, each < table.max_positions(); on the CPU a larger one throws Error
void rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction);

}  // namespace qft::ops
