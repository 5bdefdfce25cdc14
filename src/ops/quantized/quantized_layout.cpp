#include "qft/ops/quantized_layout.h"

#include "qft/core/error.h"

#include <array>

namespace qft::ops {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

std::int64_t pieces(std::int64_t whole, std::int64_t piece) {
  return (whole + piece - 1) / piece;
}

}  // namespace

std::string_view name_of(QuantFormat format) {
  static constexpr std::array<std::string_view, 8> kNames = {"none", "nf4", "fp4", "int8", "fp8", "int4", "int8", "fp32"};
  return kNames.at(static_cast<std::size_t>(format));
}

std::string describe(const Quantization& kind) {
  std::string words(name_of(kind.format));
  if (kind.nested) words += " with double quantisation";
  if (kind.format == QuantFormat::fp8 && kind.columns > 0)
    words += fmt::format(" in tiles of {} x {}", kind.tile_rows, kind.columns);
  if (!in_groups(kind.format)) return words;
  words += kind.columns > 0 ? fmt::format(" in groups of {}", kind.columns) : " in a group a row";
  return words + (kind.ordered ? " in act order" : "");
}

std::int64_t QuantizedLayout::block() const {
  return in_blocks(kind.format) ? kFourBitBlock : kind.columns > 0 ? kind.columns : columns;
}

std::int64_t QuantizedLayout::code_bytes() const {
  if (kind.format == QuantFormat::fp32) return 4 * numel();
  return four_bits(kind.format) ? pieces(numel(), 2) : numel();
}

std::int64_t QuantizedLayout::blocks() const {
  if (kind.format == QuantFormat::fp32) return 0;
  return in_blocks(kind.format) ? pieces(numel(), kFourBitBlock) : pieces(rows, kind.tile_rows) * blocks_per_row();
}

QuantizedLayout QuantizedLayout::of(const Quantization& kind, std::int64_t rows, std::int64_t columns) {
  QuantizedLayout l{.kind = kind, .rows = rows, .columns = columns};
  l.kind.nested = kind.nested && in_blocks(kind.format);
  require(kind.format != QuantFormat::groups4 || (columns % 2 == 0 && l.block() % 2 == 0),
          "4-bit groups need even sizes: {} columns in groups of {}", columns, l.block());
  const std::int64_t blocks = l.blocks();
  l.scales = aligned(l.code_bytes());
  l.nested_scales = aligned(l.scales + blocks * (l.kind.nested ? 1 : 4));
  l.zeros = l.kind.nested ? aligned(l.nested_scales + 4 * (pieces(blocks, kNestedBlock) + 1)) : l.nested_scales;
  l.order = aligned(l.zeros + (in_groups(kind.format) ? blocks : 0));
  l.bytes = aligned(l.order + (kind.ordered ? 4 * columns : 0));
  return l;
}

}  // namespace qft::ops
