// Softmax and its gradient on tiles of attention scores.
#define HWY_TARGET_INCLUDE "ops/attention/softmax_cpu.cpp"
#include "softmax_cpu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

constexpr auto kTile = static_cast<std::size_t>(kAttentionTile);
using WordVec = hn::Vec<Words>;

/// Rounds to bf16 in the upper half, ties away from zero: one addition instead of four for ties to even. Probabilities and their
/// gradients hardly ever tie.
HWY_INLINE WordVec half_up_bits(Vec v) {
  return hn::Add(hn::BitCast(Words(), v), hn::Set(Words(), 0x8000));
}

/// Stores two vectors of successive columns as 2 * lanes elements.
HWY_INLINE void store_two(Vec a, Vec b, float* p) {
  store(a, p);
  store(b, p + hn::Lanes(Floats()));
}
HWY_INLINE void store_two(Vec a, Vec b, Bf16* p) {
#if HWY_TARGET == HWY_SCALAR
  store(a, p);
  store(b, p + 1);
#else
  const hn::Repartition<std::uint16_t, Words> halves;
  const auto bits_a = hn::BitCast(halves, half_up_bits(a)), bits_b = hn::BitCast(halves, half_up_bits(b));
  hn::StoreU(hn::ConcatOdd(halves, bits_b, bits_a), halves, p);
#endif
}

/// Stores the same columns of two successive rows, interleaved.
HWY_INLINE void store_packed(Vec even, Vec odd, Bf16* p) {
  const Words d;
  const WordVec words = hn::Or(hn::ShiftRight<16>(half_up_bits(even)), hn::And(half_up_bits(odd), hn::Set(d, 0xFFFF0000)));
  hn::StoreU(words, d, reinterpret_cast<std::uint32_t*>(p));
}

/// Keeps lanes begin <= i + lane < end of v, and clears the others.
HWY_INLINE Vec keep_between(Vec v, std::size_t i, std::int64_t begin, std::int64_t end) {
  const auto below = [i](std::int64_t limit) HWY_ATTR {
    const std::int64_t count = std::clamp<std::int64_t>(limit - static_cast<std::int64_t>(i), 0, kMaxLanes);
    return hn::FirstN(Floats(), static_cast<std::size_t>(count));
  };
  return hn::IfThenElseZero(hn::AndNot(below(begin), below(end)), v);
}

/// Maximum for a row that sees no key in a block. It is finite, so that a later block takes all weight from this sum.
constexpr float kNothingSeen = -1e30F;

template <class E>
void softmax_rows(const SoftmaxTile<E>& a) {
  const std::size_t lanes = hn::Lanes(Floats());
  const auto columns = static_cast<std::size_t>(a.columns), width = static_cast<std::size_t>(a.head_dim);
  const Vec scale = splat(a.scale), least = splat(-std::numeric_limits<float>::infinity());
  for (std::size_t r = 0; r < kTile; ++r) {
    float* s = a.scores + static_cast<std::int64_t>(r) * a.ld;
    E* p = a.probabilities + static_cast<std::int64_t>(r) * a.ld;
    const std::int64_t visible = std::min(a.visible + static_cast<std::int64_t>(r), a.columns);
    const std::int64_t hidden = std::clamp<std::int64_t>(a.hidden + static_cast<std::int64_t>(r), 0, visible);
    std::fill(s, s + hidden, -std::numeric_limits<float>::infinity());
    std::fill(s + visible, s + columns, -std::numeric_limits<float>::infinity());
    Vec m0 = least, m1 = least;
    for (std::size_t c = 0; c < columns; c += 2 * lanes) {
      m0 = hn::Max(m0, load(s + c));
      m1 = hn::Max(m1, load(s + c + lanes));
    }
    const float block_maximum = std::max(max_of(hn::Max(m0, m1)) * a.scale, kNothingSeen);
    const float maximum = a.first ? block_maximum : std::max(a.maximum[r], block_maximum);
    const Vec shift = splat(maximum);
    Vec t0 = splat(0.0F), t1 = splat(0.0F);
    for (std::size_t c = 0; c < columns; c += 2 * lanes) {
      const Vec e0 = exp2(hn::MulSub(load(s + c), scale, shift));
      const Vec e1 = exp2(hn::MulSub(load(s + c + lanes), scale, shift));
      t0 = hn::Add(t0, e0);
      t1 = hn::Add(t1, e1);
      store_two(e0, e1, p + c);
    }
    std::fill(p, p + hidden, E{0});
    std::fill(p + visible, p + columns, E{0});
    const float total = sum_of(hn::Add(t0, t1));
    if (a.first) {
      a.sum[r] = total;
    } else {
      const float correction = std::exp2(a.maximum[r] - maximum);
      a.sum[r] = a.sum[r] * correction + total;
      float* out = a.out + static_cast<std::int64_t>(r) * a.head_dim;
      const Vec factor = splat(correction);
      for_vectors(width,
                  [&](std::size_t i, auto extent) HWY_ATTR { store(hn::Mul(load(out + i, extent), factor), out + i, extent); });
    }
    a.maximum[r] = maximum;
  }
}

template <class T, class E>
void finish_rows(const SoftmaxTile<E>& a, std::int64_t rows, T* to, std::int64_t to_stride, float* lse) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* out = a.out + r * a.head_dim;
    T* row = to + r * to_stride;
    const Vec factor = splat(1.0F / a.sum[r]);
    for_vectors(static_cast<std::size_t>(a.head_dim),
                [&](std::size_t i, auto extent) HWY_ATTR { store(hn::Mul(load(out + i, extent), factor), row + i, extent); });
    lse[r] = a.maximum[r] * kLn2 + std::log(a.sum[r]);
  }
}

/// Probability and score gradient for one vector.
struct Gradient {
  Vec probability, gscore;
};
HWY_INLINE Gradient gradient(Vec score, Vec gprobability, Vec scale_log2, Vec scale, Vec lse, Vec delta, bool masked,
                             std::size_t column, std::int64_t hidden, std::int64_t visible) {
  Vec p = exp2(hn::MulSub(score, scale_log2, lse));
  if (masked) p = keep_between(p, column, hidden, visible);
  return {p, hn::Mul(hn::Mul(p, scale), hn::Sub(gprobability, delta))};
}

template <class E>
void gradient_rows(const GradientTile<E>& a) {
  const std::size_t lanes = hn::Lanes(Floats());
  const Vec scale = splat(a.scale), scale_log2 = splat(a.scale * kLog2E);
  for (std::int64_t r = 0; r < a.rows; r += 2) {
    const std::int64_t first = r * kAttentionTile;
    const float *s = a.scores + first, *g = a.gprobabilities + first;
    E *p = a.probabilities + first, *gs = a.gscores + first;
    const Vec lse0 = splat(a.lse[r]), lse1 = splat(a.lse[r + 1]);
    const Vec delta0 = splat(a.delta[r]), delta1 = splat(a.delta[r + 1]);
    const std::int64_t hidden = a.hidden + r, visible = a.diagonal ? r + 1 : kAttentionTile;
    const bool masked = visible < kAttentionTile || hidden >= 0;
    const auto of_row = [&](std::size_t odd, std::size_t c) HWY_ATTR {
      return gradient(load(s + odd * kTile + c), load(g + odd * kTile + c), scale_log2, scale, odd ? lse1 : lse0,
                      odd ? delta1 : delta0, masked, c, hidden + static_cast<std::int64_t>(odd),
                      visible + static_cast<std::int64_t>(odd));
    };
    for (std::size_t c = 0; c < kTile; c += 2 * lanes) {
      const Gradient e0 = of_row(0, c), e1 = of_row(0, c + lanes), o0 = of_row(1, c), o1 = of_row(1, c + lanes);
      store_two(e0.gscore, e1.gscore, gs + c);
      store_two(o0.gscore, o1.gscore, gs + kTile + c);
      if constexpr (sizeof(E) == sizeof(float)) {
        store_two(e0.probability, e1.probability, p + c);
        store_two(o0.probability, o1.probability, p + kTile + c);
      } else {
        E* packed = a.gscores_packed + first;
        store_packed(e0.probability, o0.probability, p + 2 * c);
        store_packed(e1.probability, o1.probability, p + 2 * (c + lanes));
        store_packed(e0.gscore, o0.gscore, packed + 2 * c);
        store_packed(e1.gscore, o1.gscore, packed + 2 * (c + lanes));
      }
    }
  }
}

template <class T, class E>
SoftmaxKernels<T, E> kernels() {
  return {&softmax_rows<E>, &finish_rows<T, E>, &gradient_rows<E>};
}
SoftmaxKernels<float, float> softmax_kernels_f32() {
  return kernels<float, float>();
}
SoftmaxKernels<Bf16, Bf16> softmax_kernels_bf16() {
  return kernels<Bf16, Bf16>();
}
SoftmaxKernels<Bf16, float> softmax_kernels_widened() {
  return kernels<Bf16, float>();
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(softmax_kernels_f32);
HWY_EXPORT(softmax_kernels_bf16);
HWY_EXPORT(softmax_kernels_widened);

template <>
SoftmaxKernels<float, float> softmax_kernels() {
  return HWY_DYNAMIC_DISPATCH(softmax_kernels_f32)();
}
template <>
SoftmaxKernels<Bf16, Bf16> softmax_kernels() {
  return HWY_DYNAMIC_DISPATCH(softmax_kernels_bf16)();
}
template <>
SoftmaxKernels<Bf16, float> softmax_kernels() {
  return HWY_DYNAMIC_DISPATCH(softmax_kernels_widened)();
}

}  // namespace qft::ops::cpu
#endif
