#include "qft/ops/quantized_tables.h"

#include <cstddef>

namespace qft::ops {
namespace {

/// bitsandbytes' nf4 quantiles, exact in fp32.
constexpr std::array<float, 16> kNf4 = {-1.0F,
                                        -0.6961928009986877F,
                                        -0.5250730514526367F,
                                        -0.39491748809814453F,
                                        -0.28444138169288635F,
                                        -0.18477343022823334F,
                                        -0.09105003625154495F,
                                        0.0F,
                                        0.07958029955625534F,
                                        0.16093020141124725F,
                                        0.24611230194568634F,
                                        0.33791524171829224F,
                                        0.44070982933044434F,
                                        0.5626170039176941F,
                                        0.7229568362236023F,
                                        1.0F};

/// In twelfths; codes 8 to 15 are negative.
constexpr std::array<float, 8> kFp4Twelfths = {0.0F, 0.0625F, 8.0F, 12.0F, 4.0F, 6.0F, 2.0F, 3.0F};

std::array<float, 16> fp4() {
  std::array<float, 16> table{};
  for (std::size_t i = 0; i < 8; ++i) {
    table[i] = kFp4Twelfths[i] / 12.0F;
    table[i + 8] = -kFp4Twelfths[i] / 12.0F;
  }
  return table;
}

}  // namespace

const std::array<float, 16>& four_bit_values(QuantFormat format) {
  static const std::array<float, 16> kFp4 = fp4();
  return format == QuantFormat::fp4 ? kFp4 : kNf4;
}

}  // namespace qft::ops
