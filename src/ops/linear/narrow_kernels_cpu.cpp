// Products with so few columns that reading the large side dominates. The kernels read that side unconverted, each element once
// or twice from the cache, and widen it in registers.
#define HWY_TARGET_INCLUDE "ops/linear/narrow_kernels_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

constexpr int kUnit = kNarrowUnit;
/// Vectors whose sums with kUnit factors stay in registers. AVX-512 has 32 registers, AVX2 has 16.
#if HWY_TARGET <= HWY_AVX3
constexpr int kVectors = 4;
#else
constexpr int kVectors = 2;
#endif

/// Dot products of kUnit factors, starting at `c`, with `Tokens` rows, starting at t. The order of a sum does not depend on
/// `Tokens`.
template <int Tokens>
HWY_INLINE void dots_of(const NarrowDots& a, std::int64_t t, std::int64_t c) {
  Vec sums[Tokens][kUnit];
  for (auto& of_token : sums)
    for (Vec& sum : of_token) sum = splat(0.0F);
  const Bf16* rows = a.rows + t * a.row_stride;
  const float* factors = a.factors + c * a.width;
  for_vectors(static_cast<std::size_t>(a.width), [&](std::size_t i, auto extent) HWY_ATTR {
    Vec factor[kUnit];
    for (int f = 0; f < kUnit; ++f) factor[f] = load(factors + f * a.width + i, extent);
    for (int k = 0; k < Tokens; ++k) {
      const Vec row = load(rows + k * a.row_stride + i, extent);
      for (int f = 0; f < kUnit; ++f) sums[k][f] = hn::MulAdd(row, factor[f], sums[k][f]);
    }
  });
  const auto used = static_cast<int>(std::min<std::int64_t>(kUnit, a.count - c));
  for (int k = 0; k < Tokens; ++k)
    for (int f = 0; f < used; ++f) store_one(a.scale * sum_of(sums[k][f]), a.out + (t + k) * a.out_stride + c + f);
}

void dots(const NarrowDots& a, std::int64_t begin, std::int64_t end) {
  std::int64_t t = begin;
  for (; t + kVectors <= end; t += kVectors)
    for (std::int64_t c = 0; c < a.count; c += kUnit) dots_of<kVectors>(a, t, c);
  for (; t < end; ++t)
    for (std::int64_t c = 0; c < a.count; c += kUnit) dots_of<1>(a, t, c);
}

/// Columns whose sums are held at a time, and tokens per block; a block's rows stay in cache.
constexpr std::int64_t kColumns = 256, kTokens = 64;

/// sums[f][...] += tokens [t, t + n) for kUnit factors and `Count` vectors of columns, starting at `i`.
template <int Count, class Extent>
HWY_INLINE void sums_of(const NarrowSums& a, std::int64_t t, std::int64_t n, std::int64_t c, std::int64_t i, float* sums,
                        Extent extent) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const std::int64_t padded = (a.count + kUnit - 1) / kUnit * kUnit;
  Vec held[kUnit][Count];
  for (int f = 0; f < kUnit; ++f)
    for (int v = 0; v < Count; ++v) held[f][v] = load(sums + f * kColumns + v * lanes, extent);
  for (std::int64_t k = t; k < t + n; ++k) {
    const Bf16* row = a.rows + k * a.row_stride + i;
    const float* factors = a.factors + k * padded + c;
    Vec values[Count];
    for (int v = 0; v < Count; ++v) values[v] = load(row + v * lanes, extent);
    for (int f = 0; f < kUnit; ++f)
      for (int v = 0; v < Count; ++v) held[f][v] = hn::MulAdd(splat(factors[f]), values[v], held[f][v]);
  }
  for (int f = 0; f < kUnit; ++f)
    for (int v = 0; v < Count; ++v) store(held[f][v], sums + f * kColumns + v * lanes, extent);
}

void sums(const NarrowSums& a, std::int64_t begin, std::int64_t end) {
  alignas(64) float held[kMaxNarrow * kColumns];
  const auto block = static_cast<std::int64_t>(kVectors * hn::Lanes(Floats()));
  for (std::int64_t i0 = begin; i0 < end; i0 += kColumns) {
    const std::int64_t columns = std::min(kColumns, end - i0), blocks = columns / block * block;
    std::fill_n(held, kMaxNarrow * kColumns, 0.0F);
    for (std::int64_t t = 0; t < a.tokens; t += kTokens) {
      const std::int64_t n = std::min(kTokens, a.tokens - t);
      for (std::int64_t c = 0; c < a.count; c += kUnit) {
        float* sums = held + c * kColumns;
        for (std::int64_t i = 0; i < blocks; i += block) sums_of<kVectors>(a, t, n, c, i0 + i, sums + i, Whole{});
        for_vectors(static_cast<std::size_t>(columns - blocks), [&](std::size_t i, auto extent) HWY_ATTR {
          const std::int64_t at = blocks + static_cast<std::int64_t>(i);
          sums_of<1>(a, t, n, c, i0 + at, sums + at, extent);
        });
      }
    }
    float* out = a.out + i0 * a.out_column_stride;
    for (std::int64_t i = 0; i < columns; ++i)
      for (std::int64_t c = 0; c < a.count; ++c) out[c * a.out_stride + i * a.out_column_stride] += held[c * kColumns + i];
  }
}

NarrowKernels kernels() {
  return {&dots, &sums};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(kernels);

NarrowKernels narrow_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels)();
}

}  // namespace qft::ops::cpu
#endif
