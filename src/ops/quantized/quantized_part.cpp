#include "qft/ops/quantized_part.h"

#include "qft/core/error.h"

#include <numeric>

namespace qft::ops {
namespace {

/// True if the part's scales are some of the matrix's whole nested blocks, and so can stay codes.
bool keeps_nested(const QuantizedLayout& whole, std::span<const Box> boxes) {
  return boxes.size() == 1 && boxes.front().extent[1] == whole.columns &&
         boxes.front().start[0] * whole.columns % (kFourBitBlock * kNestedBlock) == 0;
}

}  // namespace

PartSteps part_steps(const QuantizedLayout& whole) {
  const QuantFormat format = whole.kind.format;
  if (in_blocks(format))
    return {kFourBitBlock / std::gcd(kFourBitBlock, whole.columns),
            whole.columns % kFourBitBlock == 0 ? kFourBitBlock : whole.columns};
  if (whole.kind.ordered) return {1, whole.columns};
  return {1, format == QuantFormat::groups4 ? 2 : 1};
}

QuantizedLayout part_layout(const QuantizedLayout& whole, std::span<const Box> boxes, const std::string& what) {
  const PartSteps steps = part_steps(whole);
  const std::int64_t first = boxes.front().start[1], count = boxes.front().extent[1];
  const bool cuts_columns = count != whole.columns;
  if (cuts_columns && whole.kind.ordered)
    fail_config(
        "{} is kept as {}, and act order assigns its {} inputs to groups in another order: a group cannot be cut, so tensor ranks "
        "cannot share these inputs. Use a model without desc_act, or tensor_parallel: 1",
        what, describe(whole.kind), whole.columns);
  if (cuts_columns && (first % steps.columns != 0 || (first + count != whole.columns && count % steps.columns != 0)))
    fail_config("{} is kept as {}: its {} inputs can be cut at multiples of {}, but a tensor rank would hold {} from {} on", what,
                describe(whole.kind), whole.columns, steps.columns, count, first);
  QuantizedLayout part{.kind = whole.kind, .columns = count};
  for (const Box& box : boxes) {
    if (box.start[0] % steps.rows != 0 || part.rows % steps.rows != 0)
      fail_config("{} is kept as {}: its {} outputs can be cut at multiples of {}, but a tensor rank would hold {} from {} on",
                  what, describe(whole.kind), whole.rows, steps.rows, box.extent[0], box.start[0]);
    // Smaller tiles, each inside one of the whole's and one box.
    part.kind.tile_rows = std::gcd(part.kind.tile_rows, std::gcd(box.start[0], part.rows));
    part.rows += box.extent[0];
  }
  if (whole.kind.columns > 0) part.kind.columns = std::gcd(whole.kind.columns, first);
  part.kind.nested = whole.kind.nested && keeps_nested(whole, boxes);
  return QuantizedLayout::of(part.kind, part.rows, part.columns);
}

}  // namespace qft::ops
