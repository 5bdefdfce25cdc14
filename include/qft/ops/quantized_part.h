// Parts of a quantised matrix that hold its codes and scales unchanged, for ranks that share the matrix.
#pragma once

#include "qft/core/box.h"
#include "qft/ops/quantized_layout.h"

#include <cstdint>
#include <span>
#include <string>

namespace qft::ops {

/// Steps in which a matrix of this format can be cut. A step that is the number of columns: its columns cannot be cut.
struct PartSteps {
  std::int64_t rows = 1, columns = 1;
};
PartSteps part_steps(const QuantizedLayout& whole);

/// Returns the layout of boxes of the matrix [whole.rows, whole.columns]: they lie one after the other and have the same columns.
/// Scales that belong to a tile or group on both sides of a cut are on both sides. Nested scales are kept as fp32 if the part
/// does not begin where one of their scales does. Throws ConfigError, naming `what`, if a box does not begin at one of
/// part_steps().
QuantizedLayout part_layout(const QuantizedLayout& whole, std::span<const Box> boxes, const std::string& what);

/// Copies the boxes' codes and scales from the bytes of the whole matrix to the zeroed bytes [part.bytes] of their part_layout().
/// The part decodes to the same bits as the boxes of the whole.
void copy_part(const QuantizedLayout& whole, const std::uint8_t* from, std::span<const Box> boxes, const QuantizedLayout& part,
               std::uint8_t* to);

}  // namespace qft::ops
