#include "qft/ops/quantized_layout.h"

#include <array>

namespace qft::ops {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

std::string_view name_of(QuantFormat format) {
  static constexpr std::array<std::string_view, 5> kNames = {"none", "nf4", "fp4", "int8", "fp8"};
  return kNames.at(static_cast<std::size_t>(format));
}

std::int64_t QuantizedLayout::block() const {
  return four_bits(kind.format) ? kBlockOf4Bits : columns;
}

QuantizedLayout QuantizedLayout::of(const Quantization& kind, std::int64_t rows, std::int64_t columns) {
  QuantizedLayout l{kind, rows, columns};
  l.kind.nested = kind.nested && four_bits(kind.format);
  const std::int64_t blocks = l.blocks(), nested_blocks = (blocks + kNestedBlock - 1) / kNestedBlock;
  l.scales = aligned(four_bits(kind.format) ? (l.numel() + 1) / 2 : l.numel());
  l.nested_scales = aligned(l.scales + blocks * (l.kind.nested ? 1 : 4));
  l.bytes = l.kind.nested ? aligned(l.nested_scales + 4 * (nested_blocks + 1)) : l.nested_scales;
  return l;
}

}  // namespace qft::ops
