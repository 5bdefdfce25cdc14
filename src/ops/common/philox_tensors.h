// Random half words for rows in plain ATen calls, on any device.
#pragma once

#include "qft/ops/dropout.h"

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops::generic {

/// Returns the half words that decide features [first, first + width) of each row, as int64 [T, width].
at::Tensor philox_halves(const RowIdentity& rows, std::int64_t width, PhiloxKey key, std::int64_t first = 0);

}  // namespace qft::ops::generic
