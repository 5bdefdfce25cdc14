// The values of 8-bit codes in block-wise quantisation.
#pragma once

#include <array>

namespace qft::ops {

/// Returns bitsandbytes' dynamic map (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization") in ascending order.
/// It covers [-1, 1] if signed, otherwise [0, 1].
const std::array<float, 256>& dynamic_map(bool is_signed);

}  // namespace qft::ops
