// Parts of a quantised matrix that hold its codes and scales unchanged, for ranks that share the matrix.
#pragma once

#include "qft/core/box.h"
#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <span>
#include <string>

namespace qft::ops {

/// A matrix of this format can be cut at multiples of these numbers of rows and columns. If `columns` is the matrix's width, its
/// columns cannot be cut.
struct PartSteps {
  std::int64_t rows = 1, columns = 1;
};
PartSteps part_steps(const QuantizedLayout& whole);

/// Returns the layout of boxes of the matrix [whole.rows, whole.columns]. The boxes lie one after the other and have the same
/// columns. If a cut divides a tile or group, the parts on both sides have its scale. Nested scales stay nested only if the part
/// begins with one of their blocks; otherwise they become fp32. Throws ConfigError, naming `what`, if a box does not begin at a
/// multiple of part_steps(), or if it cuts columns that act order has permuted.
QuantizedLayout part_layout(const QuantizedLayout& whole, std::span<const Box> boxes, const std::string& what);

/// Copies the boxes' codes and scales from the bytes of the whole matrix to the zeroed bytes [part.bytes] of their part_layout().
/// The part decodes to the same bits as the boxes of the whole.
void copy_part(const QuantizedLayout& whole, const std::uint8_t* from, std::span<const Box> boxes, const QuantizedLayout& part,
               std::uint8_t* to);

}  // namespace qft::ops
