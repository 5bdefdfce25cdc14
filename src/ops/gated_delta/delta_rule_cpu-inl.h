// Shared by forward and backward of the gated delta rule: a chunk's rows, decays and scratch. Included once per target, after
// vector-inl.h. Matrices over pairs of a chunk's rows are [.., kDeltaChunk], with row i and column j.
#include "../common/targets_cpu.h"  // outside of the toggle: compiles the including file for the other targets first

#if defined(QFT_OPS_DELTA_RULE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QFT_OPS_DELTA_RULE_INL_H
#undef QFT_OPS_DELTA_RULE_INL_H
#else
#define QFT_OPS_DELTA_RULE_INL_H
#endif

#include "qft/ops/cpu/delta_net_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../common/packing_cpu.h"
#include "../common/vector-inl.h"
#include "small_products_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

constexpr std::int64_t kChunk = kDeltaChunk;

/// Layout of a kernel's scratch.
class DeltaScratch {
 public:
  DeltaScratch(std::int64_t key_dim, std::int64_t value_dim, float* from) : next_(from) {
    for (float** p : {&q, &k, &keys, &gq, &gk, &from_state}) *p = take(kChunk * key_dim);
    for (float** p : {&out, &updates, &gout, &gupdates, &gresiduals, &transposed_updates}) *p = take(kChunk * value_dim);
    for (float** p : {&qk, &kk, &decay, &system, &weights, &gqk, &gkk}) *p = take(kChunk * kChunk);
    for (float** p : {&q_inverse, &k_inverse, &from_start, &to_end, &dots, &gsums}) *p = take(kChunk);
    for (float** p : {&transposed_state, &transposed_gstate}) *p = take(key_dim * value_dim);
  }
  float *q, *k, *keys, *gq, *gk, *from_state;
  float *out, *updates, *gout, *gupdates, *gresiduals, *transposed_updates;
  float *qk, *kk, *decay, *system, *weights, *gqk, *gkk;
  float *q_inverse, *k_inverse, *from_start, *to_end, *dots, *gsums;
  float *transposed_state, *transposed_gstate;

 private:
  float* take(std::int64_t elements) {
    float* taken = next_;
    next_ += elements;
    return taken;
  }
  float* next_;
};

/// to[count][width] = scale * rows / sqrt(sum of squares + 1e-6); inverse = 1 / that root.
template <class T>
void normalise_rows(const HeadRows<const T>& x, const DeltaRows& at, std::int64_t width, float scale, float* to, float* inverse) {
  const auto n = static_cast<std::size_t>(width);
  for (std::int64_t i = 0; i < at.count; ++i) {
    const T* row = x.row(at.token + i, at.key_head);
    float* unit = to + i * width;
    const float squares = sum_over(n, [&](std::size_t c, auto extent, Vec sum) HWY_ATTR {
      const Vec v = load(row + c, extent);
      return hn::MulAdd(v, v, sum);
    });
    inverse[i] = 1.0F / std::sqrt(squares + 1e-6F);
    const Vec factor = splat(inverse[i] * scale);
    for_vectors(n, [&](std::size_t c, auto extent) HWY_ATTR { store(hn::Mul(load(row + c, extent), factor), unit + c, extent); });
  }
}
inline float query_scale(std::int64_t key_dim) {
  return 1.0F / std::sqrt(static_cast<float>(key_dim));
}

/// decay[i][j] = exp(G_i - G_j) for j <= i, else 0, for `count` rows i starting at `first`. Takes the differences in fp64.
inline void decays(const double* sums, std::int64_t first, std::int64_t count, float* decay) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  for (std::int64_t i = 0; i < count; ++i) {
    float* row = decay + i * kChunk;
    const std::int64_t seen = first + i + 1;
    const double own = sums[first + i];
    for (std::int64_t j = 0; j < seen; ++j) row[j] = static_cast<float>(own - sums[j]);
    std::fill(row + seen, row + kChunk, 0.0F);
    for (std::int64_t j = 0; j < seen; j += lanes) store(exp(load(row + j)), row + j);
    std::fill(row + seen, row + kChunk, 0.0F);
  }
}

/// to[i][j] = sign * products[i][j] decay[i][j] for j < first + i + inclusive, else 0.
inline void decayed(const float* products, const float* decay, std::int64_t first, std::int64_t count, bool inclusive, float sign,
                    float* to) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Floats()));
  const Vec factor = splat(sign);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i * kChunk, seen = first + i + (inclusive ? 1 : 0);
    for (std::int64_t j = 0; j < seen; j += lanes)
      store(hn::Mul(factor, hn::Mul(load(products + row + j), load(decay + row + j))), to + row + j);
    std::fill(to + row + seen, to + row + kChunk, 0.0F);
  }
}

/// to[i] = sign * factors[i] * from[i] for each row.
inline void scale_rows(const float* from, const float* factors, float sign, std::int64_t count, std::int64_t width, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const Vec factor = splat(sign * factors[i]);
    for_vectors(static_cast<std::size_t>(width), [&](std::size_t c, auto extent) HWY_ATTR {
      store(hn::Mul(factor, load(from + i * width + static_cast<std::int64_t>(c), extent)),
            to + i * width + static_cast<std::int64_t>(c), extent);
    });
  }
}

/// Computes exp(G_i) and exp(G_last - G_i) per row.
inline void edge_decays(const double* sums, std::int64_t count, float* from_start, float* to_end) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (from_start != nullptr) from_start[i] = static_cast<float>(std::exp(sums[i]));
    if (to_end != nullptr) to_end[i] = static_cast<float>(std::exp(sums[count - 1] - sums[i]));
  }
}

/// to [width][columns] = from [count][width] transposed.
inline void transpose_to(const float* from, std::int64_t count, std::int64_t width, std::int64_t columns, float* to) {
  packing_kernels<float, float>().transpose({from, width, count, width}, columns, to);
}

/// Calls f(std::integral_constant<int, rows>, first row) for tiles of kTileRows rows, then for single rows.
template <class F>
HWY_INLINE void for_tiles(std::int64_t count, F f) {
  std::int64_t row = 0;
  for (; row + kTileRows <= count; row += kTileRows) f(std::integral_constant<int, kTileRows>{}, row);
  for (; row < count; ++row) f(std::integral_constant<int, 1>{}, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
