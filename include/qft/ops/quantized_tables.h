// The numbers that codes of quantised weights stand for.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>

namespace qft::ops {

/// 1/127 as bitsandbytes has it: what int8 multiplies a row's largest magnitude by.
inline constexpr float kOf127 = 0.007874015718698502F;

/// Of a format of 4 bits, by code.
const std::array<float, 16>& table_of(QuantFormat format);

}  // namespace qft::ops
