// Weights at rest in 8 or 4 bits: the formats, and how the parts of a quantised tensor lie in its bytes. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string_view>

namespace qft::ops {

enum class QuantFormat : std::uint8_t {
  none,
  nf4,   ///< 16 quantiles of the normal distribution times the block's largest magnitude
  fp4,   ///< bitsandbytes' float of 4 bits, likewise
  int8,  ///< value = code * row's largest magnitude / 127 (as LLM.int8 keeps weights)
  fp8    ///< e4m3 times the row's largest magnitude / 448
};
std::string_view name_of(QuantFormat format);
constexpr bool four_bits(QuantFormat format) {
  return format == QuantFormat::nf4 || format == QuantFormat::fp4;
}

inline constexpr std::int64_t kBlockOf4Bits = 64;  ///< numbers that share a scale
inline constexpr std::int64_t kNestedBlock = 256;  ///< scales that share a scale

struct Quantization {
  QuantFormat format = QuantFormat::none;
  bool nested = false;  ///< 4 bits only: scales are themselves codes of 8 bits, in blocks of 256 (double quantisation)
  bool operator==(const Quantization&) const = default;
};

/// Where the parts of a quantised tensor [rows, columns] lie in its bytes. Parts start on multiples of 64 bytes.
struct QuantizedLayout {
  Quantization kind;
  std::int64_t rows = 0, columns = 0;
  std::int64_t scales = 0;         ///< first byte of the scales: fp32, or codes where nested
  std::int64_t nested_scales = 0;  ///< of the scales' scales, fp32, followed by their offset
  std::int64_t bytes = 0;          ///< of all

  static QuantizedLayout of(const Quantization& kind, std::int64_t rows, std::int64_t columns);
  std::int64_t numel() const { return rows * columns; }
  /// Numbers that share a scale, and how many scales there are.
  std::int64_t block() const;
  std::int64_t blocks() const { return (numel() + block() - 1) / block(); }
};

}  // namespace qft::ops
