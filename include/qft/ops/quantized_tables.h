// The numbers that codes of quantised weights stand for.
#pragma once

#include "qft/ops/quantized_layout.h"

#include <array>

namespace qft::ops {

/// Of a format of 4 bits, by code.
const std::array<float, 16>& table_of(QuantFormat format);
/// Of the codes of nested scales: bitsandbytes' dynamic map, signed (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
/// Quantization"), ascending.
const std::array<float, 256>& dynamic_map();

}  // namespace qft::ops
