#include "brgemm.h"

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include <c10/util/BFloat16.h>

namespace qft::model::ops::blocked {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};
/// Whole tiles, and parts of them each way: a processor's kernels may serve only some.
constexpr std::array<Sizes, 5> kTried = {{{4, 16, 8}, {16, 32, 8}, {16, 8, 64}, {16, 5, 2}, {32, 32, 72}}};

/// A small product of known result.
template <class T>
bool product_is_right(const Sizes& s, T one) {
  constexpr std::int64_t pack = sizeof(float) / sizeof(T);
  std::vector<T> a(static_cast<std::size_t>(s.m * s.k)), b(static_cast<std::size_t>(s.k * s.n));
  std::vector<float> c(static_cast<std::size_t>(s.m * s.n)), expected(c.size());
  const std::int64_t row = s.m - 1, inner = s.k - 1, column = s.n - 1;
  a[static_cast<std::size_t>(row * s.k + inner)] = one;  // picks the last row of b
  b[static_cast<std::size_t>((inner / pack * s.n + column) * pack + inner % pack)] = one;
  expected[static_cast<std::size_t>(row * s.n + column)] = 1.0F;
  try {
    product(s.m, s.n, s.k, a.data(), s.k, b.data(), s.n, c.data(), s.n, false);
    at::native::cpublas::brgemm_release();
  } catch (const std::exception&) {
    return false;
  }
  return c == expected;
}

template <class T>
bool all_right(T one) {
  return std::ranges::all_of(kTried, [one](const Sizes& s) { return product_is_right(s, one); });
}

}  // namespace

bool available(at::ScalarType dtype) {
  static const bool f32 = all_right(1.0F), bf16 = all_right(c10::BFloat16(1.0F).x);
  return dtype == at::kFloat ? f32 : dtype == at::kBFloat16 && bf16;
}

}  // namespace qft::model::ops::blocked
