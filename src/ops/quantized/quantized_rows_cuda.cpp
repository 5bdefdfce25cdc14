#include "quantized_rows_cuda.h"

#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized_tables.h"

#include <algorithm>

#include <c10/util/Float8_e4m3fn.h>

namespace qft::ops {
namespace {

constexpr std::int64_t kRowOfBlocks = 64 * kFourBitBlock;  ///< a multiple of a thread's share

std::array<float, 256> numbers_of(QuantFormat format) {
  std::array<float, 256> numbers{};
  if (in_blocks(format)) std::ranges::copy(four_bit_values(format), numbers.begin());
  for (std::size_t code = 0; code < numbers.size() && !in_blocks(format); ++code) {
    const auto bits = static_cast<std::uint8_t>(code);
    if (format == QuantFormat::fp8)
      numbers[code] = static_cast<float>(c10::Float8_e4m3fn(bits, c10::Float8_e4m3fn::from_bits()));
    else
      numbers[code] = format == QuantFormat::int8 ? static_cast<float>(static_cast<std::int8_t>(bits)) : static_cast<float>(bits);
  }
  return numbers;
}

}  // namespace

QuantizedRows QuantizedRows::of(const QuantizedLayout& l) {
  const bool flat = in_blocks(l.kind.format);
  const std::int64_t width = flat ? kRowOfBlocks : l.columns;
  return {.numbers = numbers_of(l.kind.format),
          .scale_numbers = dynamic_map(true),
          .rows = (l.numel() + width - 1) / width,
          .width = width,
          .numel = l.numel(),
          .block = l.block(),
          .across = flat ? width / l.block() : l.blocks_per_row(),
          .tile_rows = flat ? 1 : l.kind.tile_rows,
          .scales = l.scales,
          .nested_scales = l.nested_scales,
          .offset = l.nested_scales + 4 * ((l.blocks() + kNestedBlock - 1) / kNestedBlock),
          .zeros = in_groups(l.kind.format) ? l.zeros : 0,
          .order = l.kind.ordered ? l.order : 0,
          .factor = l.kind.format == QuantFormat::int8 ? kInverse127 : 1.0F,
          .four_bits = ops::four_bits(l.kind.format),
          .nested = l.kind.nested};
}

}  // namespace qft::ops
