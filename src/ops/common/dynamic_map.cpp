#include "qft/ops/dynamic_map.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cstddef>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linspace.h>

namespace qft::ops {
namespace {

/// Seven powers of ten, each with twice as many values between a tenth of the power and the power itself; plus 0 and 1.
std::array<float, 256> make_dynamic_map(bool is_signed) {
  constexpr std::array<double, 7> kPowers = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};
  std::array<float, 256> map{};
  std::size_t n = 0;
  for (std::size_t i = 0; i < kPowers.size(); ++i) {
    const std::int64_t items = std::int64_t{1} << (is_signed ? i : i + 1);
    // Uses ATen for the same roundings as bitsandbytes' torch code.
    const at::Tensor bounds = at::linspace(0.1, 1.0, items + 1, at::kFloat);
    const at::Tensor means = (bounds.narrow(0, 0, items) + bounds.narrow(0, 1, items)) / 2.0 * kPowers[i];
    for (std::int64_t k = 0; k < items; ++k) {
      map[n++] = means.data_ptr<float>()[k];
      if (is_signed) map[n++] = -means.data_ptr<float>()[k];
    }
  }
  map[n++] = 0.0F;
  map[n++] = 1.0F;
  QFT_ASSERT(n == map.size(), "the dynamic map has {} numbers", n);
  std::sort(map.begin(), map.end());
  return map;
}

}  // namespace

const std::array<float, 256>& dynamic_map(bool is_signed) {
  static const std::array<float, 256> kSigned = make_dynamic_map(true), kUnsigned = make_dynamic_map(false);
  return is_signed ? kSigned : kUnsigned;
}

}  // namespace qft::ops
