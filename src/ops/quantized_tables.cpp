#include "qft/ops/quantized_tables.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstddef>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>

namespace qft::ops {
namespace {

/// The quantiles of bitsandbytes' nf4: exact as fp32.
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

/// Twelfths; the upper eight are negative.
constexpr std::array<float, 8> kFp4Twelfths = {0.0F, 0.0625F, 8.0F, 12.0F, 4.0F, 6.0F, 2.0F, 3.0F};

std::array<float, 16> fp4() {
  std::array<float, 16> table{};
  for (std::size_t i = 0; i < 8; ++i) {
    table[i] = kFp4Twelfths[i] / 12.0F;
    table[i + 8] = -kFp4Twelfths[i] / 12.0F;
  }
  return table;
}

/// For each of seven powers of ten, with ever more numbers between a tenth of it and itself; 0 and 1.
std::array<float, 256> make_dynamic_map() {
  constexpr std::array<double, 7> kPowers = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};
  std::array<float, 256> map{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    const std::int64_t items = std::int64_t{1} << i;
    // By ATen, as bitsandbytes does by torch: the same roundings.
    const at::Tensor bounds = at::linspace(0.1, 1.0, items + 1, at::kFloat);
    const at::Tensor means = (bounds.narrow(0, 0, items) + bounds.narrow(0, 1, items)) / 2.0 * kPowers[i];
    for (std::int64_t k = 0; k < items; ++k) {
      map[n++] = means.data_ptr<float>()[k];
      map[n++] = -means.data_ptr<float>()[k];
    }
  }
  map[n++] = 0.0F;
  map[n++] = 1.0F;
  QFT_ASSERT(n == map.size(), "the dynamic map has {} numbers", n);
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

const std::array<float, 16>& table_of(QuantFormat format) {
  static const std::array<float, 16> kFp4 = fp4();
  return format == QuantFormat::fp4 ? kFp4 : kNf4;
}

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> kMap = make_dynamic_map();
  return kMap;
}

}  // namespace qft::ops
