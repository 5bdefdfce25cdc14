// Weights stored in 8 or 4 bits: the formats, and the byte layout of a quantised tensor. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qft::ops {

enum class QuantFormat : std::uint8_t {
  none,
  nf4,      ///< 16 quantiles of the normal distribution times the quantisation block's largest magnitude
  fp4,      ///< bitsandbytes' 4-bit float, likewise
  int8,     ///< value = code * row's largest magnitude / 127 (as LLM.int8 keeps weights)
  fp8,      ///< e4m3 times a scale; the scale is per row (its largest magnitude / 448) or per tile
  groups4,  ///< (code - zero point) * scale, both per group of columns in a row: GPTQ and AWQ in 4 bits
  groups8,  ///< likewise in 8 bits
  fp32      ///< not quantised: a plain linear that files store beside quantised linears of the same product, decoded with them
};
std::string_view name_of(QuantFormat format);
/// True for formats with blocks of 64 numbers that ignore row boundaries.
constexpr bool in_blocks(QuantFormat format) {
  return format == QuantFormat::nf4 || format == QuantFormat::fp4;
}
constexpr bool in_groups(QuantFormat format) {
  return format == QuantFormat::groups4 || format == QuantFormat::groups8;
}
constexpr bool four_bits(QuantFormat format) {
  return in_blocks(format) || format == QuantFormat::groups4;
}

inline constexpr std::int64_t kFourBitBlock = 64;  ///< numbers per scale
inline constexpr std::int64_t kNestedBlock = 256;  ///< scales per scale of scales

struct Quantization {
  QuantFormat format = QuantFormat::none;
  bool nested = false;         ///< blocks: scales are themselves 8-bit codes, in blocks of 256 (double quantisation)
  std::int64_t columns = 0;    ///< fp8 and groups: columns per scale, 0: all; even for groups4
  std::int64_t tile_rows = 1;  ///< fp8: rows per scale
  bool ordered = false;        ///< groups: columns are stored group by group, with their original indices alongside (act order)
  bool operator==(const Quantization&) const = default;
};
/// "nf4 with double quantisation", "fp8 in tiles of 128 x 128".
std::string describe(const Quantization& kind);

/// The byte layout of a quantised tensor [rows, columns]. Parts start at multiples of 64 bytes. Codes come first, row by row;
/// 4-bit codes are packed two per byte, the first in the upper half.
struct QuantizedLayout {
  Quantization kind;
  std::int64_t rows = 0, columns = 0;
  std::int64_t scales = 0;         ///< first byte of the scales: fp32, or codes if nested; [rows, columns] of tiles or groups
  std::int64_t nested_scales = 0;  ///< first byte of the scales' scales, fp32, followed by their offset
  std::int64_t zeros = 0;          ///< first byte of the groups' zero points, one byte each, in the order of the scales
  std::int64_t order = 0;          ///< first byte of the column indices, int32, one per stored column, if ordered
  std::int64_t bytes = 0;          ///< total size

  /// Throws Error if a row of 4-bit groups does not fill whole bytes.
  static QuantizedLayout of(const Quantization& kind, std::int64_t rows, std::int64_t columns);
  std::int64_t numel() const { return rows * columns; }
  std::int64_t code_bytes() const;
  /// Consecutive numbers per scale, and the number of scales: in total, and per row (or row of tiles).
  std::int64_t block() const;
  std::int64_t blocks() const;
  std::int64_t blocks_per_row() const { return (columns + block() - 1) / block(); }
};

}  // namespace qft::ops
