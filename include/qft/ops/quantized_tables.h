// The values of quantised codes.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>

namespace qft::ops {

/// 1/127 as bitsandbytes rounds it; int8 multiplies a row's largest magnitude with it.
inline constexpr float kInverse127 = 0.007874015718698502F;

/// Returns the 16 values of a 4-bit format, by code.
const std::array<float, 16>& four_bit_values(QuantFormat format);

}  // namespace qft::ops
