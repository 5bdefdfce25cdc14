#include "brgemm_cpu.h"

#include <exception>
#include <vector>

#include "../common/instruction_sets.h"
#include <ATen/cpu/Utils.h>
#include <c10/util/BFloat16.h>

namespace qft::ops::blocked {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};
/// Whole tiles, and partial tiles in each dimension: a processor's kernels may support only some of them.
constexpr std::array<Sizes, 5> kTrialSizes = {{{4, 16, 8}, {16, 32, 8}, {16, 8, 64}, {16, 5, 2}, {32, 32, 72}}};

/// Runs a small product with a known result.
template <class T>
bool trial_passes(const Sizes& s, T one) {
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
bool all_trials_pass(T one) {
  return std::ranges::all_of(kTrialSizes, [one](const Sizes& s) { return trial_passes(s, one); });
}

/// True if the processor multiplies bf16 faster than fp32. Decided from CPU features instead of timing, because ranks and
/// restarts must agree.
bool has_fast_bf16() {
  if (instruction_sets_are_held()) return false;  // none of the levels supports bf16
  if (at::cpu::init_amx()) return true;
#if defined(__x86_64__)
  // On Intel only AMX tiles are fast: the bf16 vector instruction takes four times as long as the fp32 one (Emerald Rapids) and
  // does twice as much.
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_is("intel") == 0;
#else
  return true;
#endif
}

}  // namespace

bool available(TileType tile_type) {
  static const bool fp32 = all_trials_pass(1.0F), bf16 = all_trials_pass(c10::BFloat16(1.0F).x);
  return tile_type == TileType::fp32 ? fp32 : bf16;
}

TileType preferred_tile_type(at::ScalarType dtype) {
  static const bool bf16 = (has_fast_bf16() && available(TileType::bf16)) || !available(TileType::fp32);
  return dtype == at::kBFloat16 && bf16 ? TileType::bf16 : TileType::fp32;
}

bool available(at::ScalarType dtype) {
  return (dtype == at::kFloat || dtype == at::kBFloat16) && available(preferred_tile_type(dtype));
}

}  // namespace qft::ops::blocked
