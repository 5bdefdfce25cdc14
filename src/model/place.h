// The boxes of parameters on this rank, and their places in a unit's flat buffers. Private to model.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>
#include <vector>

namespace qft::model {

/// Sets the shape of the logical tensor, and what follows from the cut of dimension `d`: the boxes that this rank holds, its
/// local shape, and its gradient along the tensor axis. If one rank holds a box, it has the box's gradient. If several ranks hold
/// the same box, or all hold the whole tensor, each computes with other heads, rows or inputs: the gradient is the sum over them.
void set_boxes(ParamSpec& param, Shape shape, std::size_t d, const Cut& cut, Share share);
/// Every rank holds the whole tensor.
void set_whole(ParamSpec& param, Shape shape, Share share);

/// Appends a group of parameters that lie one after the other, the first one aligned. Ranks with smaller boxes leave room before
/// the group, so it ends at the same element on all tensor ranks. A gradient that is a sum over ranks must lie at the same
/// elements on all: no parameter behind it in its group may differ in size between ranks.
void place(UnitSpec& unit, std::vector<ParamSpec> group);

/// Rounds a number of elements up to kFlatAlignment.
std::int64_t aligned(std::int64_t elements);

}  // namespace qft::model
