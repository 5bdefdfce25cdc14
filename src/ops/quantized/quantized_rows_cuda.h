// Arguments of the accelerator kernel that decodes quantised weights.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>
#include <cstdint>

namespace qft::ops {

/// Quantised bytes as rows of codes, for every format. A number is (numbers[code] - zero) * scale * factor, rounded to fp32 at
/// each step. Blocks of 64 ignore matrix rows; they are grouped into rows of a fixed length, and the last row may be shorter.
struct QuantizedRows {
  std::array<float, 256> numbers;        ///< value per code; 4-bit formats use the first 16
  std::array<float, 256> scale_numbers;  ///< likewise for the codes of nested scales
  std::int64_t rows, width, numel;
  std::int64_t block, across, tile_rows;       ///< numbers per scale, scales per row, rows that share scales
  std::int64_t scales, nested_scales, offset;  ///< first bytes of the parts; `offset` is added to each nested scale
  std::int64_t zeros, order;                   ///< first bytes, or 0 if absent
  float factor;
  bool four_bits, nested;

  /// Accepts any format except fp32.
  static QuantizedRows of(const QuantizedLayout& layout);
};

/// The same with an output of type T.
template <class T>
struct Dequantize {
  QuantizedRows from;
  const std::uint8_t* bytes;
  T* out;  ///< [from.numel]
};

}  // namespace qft::ops
