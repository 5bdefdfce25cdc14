// Copies the codes and scales of parts of quantised matrices.
#include "qft/ops/quantized_part.h"

#include <algorithm>
#include <cstring>

#include "block_scales.h"

namespace qft::ops {
namespace {

struct Columns {
  std::int64_t begin, count;
};

Columns columns_of(std::span<const Box> boxes) {
  return {boxes.front().start[1], boxes.front().extent[1]};
}

/// Calls visit(first row in the matrix, first row in the part, rows) for each box.
template <class Visit>
void for_each_box(std::span<const Box> boxes, const Visit& visit) {
  std::int64_t row = 0;
  for (const Box& box : boxes) {
    visit(box.start[0], row, box.extent[0]);
    row += box.extent[0];
  }
}

/// Returns bytes per `numbers` codes.
std::int64_t code_bytes(QuantFormat format, std::int64_t numbers) {
  if (format == QuantFormat::fp32) return 4 * numbers;
  return four_bits(format) ? (numbers + 1) / 2 : numbers;
}

/// Copies numbers of a matrix and of its part, `columns` wide each, that lie in runs of consecutive places.
class Blocks {
 public:
  Blocks(const QuantizedLayout& whole, const std::uint8_t* from, const QuantizedLayout& part, std::uint8_t* to)
      : whole_(whole), part_(part), from_(from), to_(to), scales_(from, whole) {}

  /// Copies the scales of the blocks that begin at these numbers.
  void copy_scales(std::int64_t number, std::int64_t part_number, std::int64_t count) {
    const std::int64_t first = number / kFourBitBlock, to = part_number / kFourBitBlock,
                       blocks = (count + kFourBitBlock - 1) / kFourBitBlock;
    if (part_.kind.nested) return void(std::memcpy(to_ + part_.scales + to, from_ + whole_.scales + first, bytes(blocks)));
    for (std::int64_t done = 0; done < blocks; done += kNestedBlock) {
      const std::int64_t n = std::min(kNestedBlock, blocks - done);
      std::memcpy(to_ + part_.scales + 4 * (to + done), scales_.from(first + done, n), bytes(4 * n));
    }
  }

  /// Copies the scales of a part that keeps_nested(), and their offset.
  void copy_nested(std::int64_t number) {
    const auto nested = [](const QuantizedLayout& l) { return (l.blocks() + kNestedBlock - 1) / kNestedBlock; };
    const std::int64_t first = number / kFourBitBlock / kNestedBlock;
    std::memcpy(to_ + part_.nested_scales, from_ + whole_.nested_scales + 4 * first, bytes(4 * nested(part_)));
    std::memcpy(to_ + part_.nested_scales + 4 * nested(part_), from_ + whole_.nested_scales + 4 * nested(whole_), 4);
  }

 private:
  static std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count); }

  const QuantizedLayout &whole_, &part_;
  const std::uint8_t* from_;
  std::uint8_t* to_;
  BlockScales scales_;
};

/// Copies scales and zero points of tiles or groups. The part's tiles are not larger than the whole's, and each lies in one.
void copy_tiles(const QuantizedLayout& whole, const std::uint8_t* from, std::span<const Box> boxes, const QuantizedLayout& part,
                std::uint8_t* to) {
  const Columns columns = columns_of(boxes);
  const std::int64_t across = part.blocks_per_row();
  for_each_box(boxes, [&](std::int64_t row, std::int64_t part_row, std::int64_t rows) {
    for (std::int64_t r = 0; r < rows; r += part.kind.tile_rows)
      for (std::int64_t j = 0; j < across; ++j) {
        const std::int64_t source = (row + r) / whole.kind.tile_rows * whole.blocks_per_row() +
                                    (columns.begin + j * part.block()) / whole.block(),
                           target = (part_row + r) / part.kind.tile_rows * across + j;
        std::memcpy(to + part.scales + 4 * target, from + whole.scales + 4 * source, 4);
        if (in_groups(whole.kind.format)) to[part.zeros + target] = from[whole.zeros + source];
      }
  });
  if (whole.kind.ordered) std::memcpy(to + part.order, from + whole.order, static_cast<std::size_t>(4 * whole.columns));
}

}  // namespace

void copy_part(const QuantizedLayout& whole, const std::uint8_t* from, std::span<const Box> boxes, const QuantizedLayout& part,
               std::uint8_t* to) {
  const QuantFormat format = whole.kind.format;
  const Columns columns = columns_of(boxes);
  const bool blocks = in_blocks(format);
  Blocks scales(whole, from, part, to);
  const auto copy = [&](std::int64_t number, std::int64_t part_number, std::int64_t count) {
    std::memcpy(to + code_bytes(format, part_number), from + code_bytes(format, number),
                static_cast<std::size_t>(code_bytes(format, count)));
    if (blocks) scales.copy_scales(number, part_number, count);
  };
  for_each_box(boxes, [&](std::int64_t row, std::int64_t part_row, std::int64_t rows) {
    if (columns.count == whole.columns) return copy(row * whole.columns, part_row * whole.columns, rows * whole.columns);
    for (std::int64_t r = 0; r < rows; ++r)
      copy((row + r) * whole.columns + columns.begin, (part_row + r) * columns.count, columns.count);
  });
  if (part.kind.nested) scales.copy_nested(boxes.front().start[0] * whole.columns);
  if (!blocks && format != QuantFormat::fp32) copy_tiles(whole, from, boxes, part, to);
}

}  // namespace qft::ops
