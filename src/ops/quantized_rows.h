// What the kernel that decodes quantised weights on an accelerator takes.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>
#include <cstdint>

namespace qft::ops {

/// Quantised bytes as rows of codes, whatever the format: a number is (numbers[code] - zero) * scale * factor, each step rounded
/// to fp32. Blocks of 64 know no rows of a matrix, and lie in rows of a length of their own, the last of which may be shorter.
struct QuantizedRows {
  std::array<float, 256> numbers;        ///< that codes stand for; of 4 bits the first 16
  std::array<float, 256> scale_numbers;  ///< likewise of codes of scales, where those are nested
  std::int64_t rows, width, numel;
  std::int64_t block, across, tile_rows;       ///< numbers of a scale, scales of a row, rows that share them
  std::int64_t scales, nested_scales, offset;  ///< first bytes of the parts; `offset` is added to each nested scale
  std::int64_t zeros, order;                   ///< or 0 where there are none
  float factor;
  bool four_bits, nested;

  /// Any format but fp32.
  static QuantizedRows of(const QuantizedLayout& layout);
};

/// The same for an output of type T.
template <class T>
struct Dequantize {
  QuantizedRows from;
  const std::uint8_t* bytes;
  T* out;  ///< [from.numel]
};

}  // namespace qft::ops
