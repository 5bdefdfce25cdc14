// The numbers that codes of quantised weights stand for.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>

namespace qft::ops {

/// Of a format of 4 bits, by code.
const std::array<float, 16>& table_of(QuantFormat format);

}  // namespace qft::ops
