// The numbers that codes of 8 bits stand for in block-wise quantisation.
#pragma once

#include <array>

namespace qft::ops {

/// bitsandbytes' dynamic map (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"), ascending: of [-1, 1], or of
/// [0, 1] where it is not signed.
const std::array<float, 256>& dynamic_map(bool is_signed);

}  // namespace qft::ops
