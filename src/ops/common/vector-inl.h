// Vector helpers for the CPU kernels: float and bf16 rows, whole vectors and tails, exp. Included once per target. Highway's
// toggle replaces the include guard: every target gets its own copy.
#include "targets_cpu.h"  // outside of the toggle: compiles the including file for the other targets first

#if defined(QFT_MODEL_OPS_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef QFT_MODEL_OPS_VECTOR_INL_H
#undef QFT_MODEL_OPS_VECTOR_INL_H
#else
#define QFT_MODEL_OPS_VECTOR_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kMaxLanes = 16;  ///< limited so that two vectors divide the attention tiles
using Floats = hn::CappedTag<float, kMaxLanes>;
using Words = hn::Rebind<std::uint32_t, Floats>;
using Halves = hn::Rebind<std::uint16_t, Floats>;  ///< as many bf16 elements as a float vector has lanes
using Vec = hn::Vec<Floats>;

/// Extent of an access: a whole vector, or its first `count` lanes.
struct Whole {};
struct Part {
  std::size_t count;
};

HWY_INLINE Vec load(const float* p, Whole = {}) {
  return hn::LoadU(Floats(), p);
}
HWY_INLINE void store(Vec v, float* p, Whole = {}) {
  hn::StoreU(v, Floats(), p);
}

HWY_INLINE Vec load(const std::uint16_t* p, Whole = {}) {
  const auto words = hn::PromoteTo(Words(), hn::LoadU(Halves(), p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(words));
}

/// Rounds the upper half of v's bits to nearest, ties to even; the lower half is garbage.
HWY_INLINE hn::Vec<Words> rounded_bits(Vec v) {
  const Words d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFF)));
}

HWY_INLINE void store(Vec v, std::uint16_t* p, Whole = {}) {
  hn::StoreU(hn::TruncateTo(Halves(), hn::ShiftRight<16>(rounded_bits(v))), Halves(), p);
}

template <class T>
HWY_INLINE Vec load(const T* p, Part part) {
  T lanes[kMaxLanes] = {};
  std::memcpy(lanes, p, part.count * sizeof(T));
  return load(lanes);
}
template <class T>
HWY_INLINE void store(Vec v, T* p, Part part) {
  T lanes[kMaxLanes];
  store(v, lanes);
  std::memcpy(p, lanes, part.count * sizeof(T));
}

/// Accesses one element.
HWY_INLINE float load_one(const float* p) {
  return *p;
}
HWY_INLINE float load_one(const std::uint16_t* p) {
  return hn::GetLane(load(p, Part{1}));
}
template <class T>
HWY_INLINE void store_one(float value, T* p) {
  store(hn::Set(Floats(), value), p, Part{1});
}

/// load() with `fill` in the lanes outside a Part.
template <class T>
HWY_INLINE Vec load_or(const T* p, Whole extent, Vec) {
  return load(p, extent);
}
template <class T>
HWY_INLINE Vec load_or(const T* p, Part part, Vec fill) {
  return hn::IfThenElse(hn::FirstN(Floats(), part.count), load(p, part), fill);
}

/// Returns v as if stored to T and read back.
HWY_INLINE Vec rounded(const float*, Vec v) {
  return v;
}
HWY_INLINE Vec rounded(const std::uint16_t*, Vec v) {
  return hn::BitCast(Floats(), hn::And(rounded_bits(v), hn::Set(Words(), 0xFFFF0000)));
}

HWY_INLINE Vec splat(float value) {
  return hn::Set(Floats(), value);
}
HWY_INLINE float sum_of(Vec v) {
  return hn::GetLane(hn::SumOfLanes(Floats(), v));
}
HWY_INLINE float max_of(Vec v) {
  return hn::GetLane(hn::MaxOfLanes(Floats(), v));
}

/// Calls f(i, Whole or Part) so that the vectors at offsets i cover [0, n).
template <class F>
HWY_INLINE void for_vectors(std::size_t n, F f) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) f(i, Whole{});
  if (i < n) f(i, Part{n - i});
}

/// Sums over all vectors of [0, n); f(i, extent, sum) adds a vector to a running sum. Uses kMaxLanes running sums for every
/// vector length, so that processors with short vectors are as accurate as others.
template <class F>
HWY_INLINE float sum_over(std::size_t n, F f) {
  constexpr std::size_t kSums = kMaxLanes / hn::MaxLanes(Floats());
  Vec sums[kSums];
  for (Vec& sum : sums) sum = splat(0.0F);
  std::size_t next = 0;
  for_vectors(n, [&](std::size_t i, auto extent) HWY_ATTR {
    sums[next] = f(i, extent, sums[next]);
    next = (next + 1) % kSums;
  });
  for (std::size_t left = kSums / 2; left > 0; left /= 2)
    for (std::size_t k = 0; k < left; ++k) sums[k] = hn::Add(sums[k], sums[k + left]);
  return sum_of(sums[0]);
}

constexpr float kLog2E = 1.44269504088896341F, kLn2 = 0.693147180559945309F;

/// Returns 2^x to 2 ulp for |x| <= 126; clamps x to +-126. The integer part goes into the exponent bits. The rest lies in [-1/2,
/// 1/2], and a polynomial with near-minimax relative error approximates it (1.6e-8 before fp32 rounding).
HWY_INLINE Vec exp2(Vec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // On these targets Min and Max would replace NaN with the bound; comparisons pass NaN through.
  x = hn::IfThenElse(hn::Lt(x, splat(-126.0F)), splat(-126.0F), x);
  x = hn::IfThenElse(hn::Gt(x, splat(126.0F)), splat(126.0F), x);
#else
  // x must come second to pass NaN through; the other order would replace it with the bound.
  x = hn::Min(splat(126.0F), hn::Max(splat(-126.0F), x));
#endif
  // Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
  const auto shifted = hn::Add(x, splat(12582912.0F));
  const auto r = hn::Sub(x, hn::Sub(shifted, splat(12582912.0F)));
  auto p = splat(1.53457950e-4F);
  p = hn::MulAdd(p, r, splat(1.33999309e-3F));
  p = hn::MulAdd(p, r, splat(9.61848907e-3F));
  p = hn::MulAdd(p, r, splat(5.55032864e-2F));
  p = hn::MulAdd(p, r, splat(2.40226462e-1F));
  p = hn::MulAdd(p, r, splat(6.93147182e-1F));
  p = hn::MulAdd(p, r, splat(1.0F));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

HWY_INLINE Vec exp(Vec x) {
  return exp2(hn::Mul(x, splat(kLog2E)));
}
/// 1 / (1 + exp(-x)).
HWY_INLINE Vec sigmoid(Vec x) {
  return hn::Div(splat(1.0F), hn::Add(splat(1.0F), exp2(hn::Mul(x, splat(-kLog2E)))));
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#endif  // toggle
