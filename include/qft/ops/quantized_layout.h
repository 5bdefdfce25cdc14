// Weights at rest in 8 or 4 bits: the formats, and how the parts of a quantised tensor lie in its bytes. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace qft::ops {

enum class QuantFormat : std::uint8_t {
  none,
  nf4,      ///< 16 quantiles of the normal distribution times the block's largest magnitude
  fp4,      ///< bitsandbytes' float of 4 bits, likewise
  int8,     ///< value = code * row's largest magnitude / 127 (as LLM.int8 keeps weights)
  fp8,      ///< e4m3 times a scale: of a row (its largest magnitude / 448), or of a tile
  groups4,  ///< (code - zero point) * scale, both of a group of columns of a row: GPTQ and AWQ in 4 bits
  groups8,  ///< likewise in 8 bits
  fp32      ///< not quantised: files have it plain beside quantised linears of its product, and it is decoded with them
};
std::string_view name_of(QuantFormat format);
/// By blocks of 64 numbers, whatever the rows.
constexpr bool in_blocks(QuantFormat format) {
  return format == QuantFormat::nf4 || format == QuantFormat::fp4;
}
constexpr bool in_groups(QuantFormat format) {
  return format == QuantFormat::groups4 || format == QuantFormat::groups8;
}
constexpr bool four_bits(QuantFormat format) {
  return in_blocks(format) || format == QuantFormat::groups4;
}

inline constexpr std::int64_t kBlockOf4Bits = 64;  ///< numbers that share a scale
inline constexpr std::int64_t kNestedBlock = 256;  ///< scales that share a scale

struct Quantization {
  QuantFormat format = QuantFormat::none;
  bool nested = false;         ///< blocks: scales are themselves codes of 8 bits, in blocks of 256 (double quantisation)
  std::int64_t columns = 0;    ///< fp8 and groups: columns that share a scale, 0: all; of groups4 an even number
  std::int64_t tile_rows = 1;  ///< fp8: rows that share a scale
  bool ordered = false;        ///< groups: columns lie group by group, and where each belongs beside them (act order)
  bool operator==(const Quantization&) const = default;
};
/// "nf4 with double quantisation", "fp8 in tiles of 128 x 128".
std::string describe(const Quantization& kind);

/// Where the parts of a quantised tensor [rows, columns] lie in its bytes. Parts start on multiples of 64 bytes; codes come
/// first, by row, those of 4 bits two a byte with the first in the upper half.
struct QuantizedLayout {
  Quantization kind;
  std::int64_t rows = 0, columns = 0;
  std::int64_t scales = 0;         ///< first byte of the scales: fp32, or codes where nested; of tiles and groups [rows, columns]
  std::int64_t nested_scales = 0;  ///< of the scales' scales, fp32, followed by their offset
  std::int64_t zeros = 0;          ///< of groups' zero points, a byte each, in the order of the scales
  std::int64_t order = 0;          ///< of the column, int32, that each place of a row belongs to, where ordered
  std::int64_t bytes = 0;          ///< of all

  /// Throws Error where 4 bits of the groups do not fill bytes.
  static QuantizedLayout of(const Quantization& kind, std::int64_t rows, std::int64_t columns);
  std::int64_t numel() const { return rows * columns; }
  std::int64_t code_bytes() const;
  /// Numbers that follow each other and share a scale, and scales: of all, and of a row or a row of tiles.
  std::int64_t block() const;
  std::int64_t blocks() const;
  std::int64_t blocks_of_row() const { return (columns + block() - 1) / block(); }
};

}  // namespace qft::ops
