// Quantised weights to the numbers they stand for.
// foreach_target.h compiles this file once per instruction set; it must come before the kernels' own headers.
// clang-format off
#include "targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantized_kernels.cpp"
#include <hwy/foreach_target.h>
#include "qft/ops/cpu/quantized_kernels.h"
#include "vector-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using Bytes = hn::FixedTag<std::uint8_t, 16>;
using ByteVec = hn::Vec<Bytes>;

/// The i-th bytes of the table's 16 numbers.
template <class T>
HWY_INLINE ByteVec plane(const T* table, std::size_t i) {
  std::uint8_t bytes[16];
  for (std::size_t k = 0; k < 16; ++k) bytes[k] = static_cast<std::uint8_t>(reinterpret_cast<const std::uint8_t*>(table + k)[i]);
  return hn::LoadU(Bytes(), bytes);
}

/// Looks up 16 numbers, byte by byte. Little-endian, as all targets are.
HWY_INLINE void look_up(const ByteVec* planes, ByteVec codes, Bf16* out) {
  const ByteVec low = hn::TableLookupBytes(planes[0], codes), high = hn::TableLookupBytes(planes[1], codes);
  auto* bytes = reinterpret_cast<std::uint8_t*>(out);
  hn::StoreU(hn::InterleaveLower(Bytes(), low, high), Bytes(), bytes);
  hn::StoreU(hn::InterleaveUpper(Bytes(), low, high), Bytes(), bytes + 16);
}
HWY_INLINE void look_up(const ByteVec* planes, ByteVec codes, float* out) {
  const hn::FixedTag<std::uint16_t, 8> pairs;
  const auto looked_up = [&](std::size_t i) HWY_ATTR { return hn::TableLookupBytes(planes[i], codes); };
  const ByteVec p0 = looked_up(0), p1 = looked_up(1), p2 = looked_up(2), p3 = looked_up(3);
  auto* to = reinterpret_cast<std::uint16_t*>(out);
  const auto store_four = [&](ByteVec low, ByteVec high, std::size_t at) HWY_ATTR {
    const auto a = hn::BitCast(pairs, low), b = hn::BitCast(pairs, high);
    hn::StoreU(hn::InterleaveLower(pairs, a, b), pairs, to + at);
    hn::StoreU(hn::InterleaveUpper(pairs, a, b), pairs, to + at + 8);
  };
  store_four(hn::InterleaveLower(Bytes(), p0, p1), hn::InterleaveLower(Bytes(), p2, p3), 0);
  store_four(hn::InterleaveUpper(Bytes(), p0, p1), hn::InterleaveUpper(Bytes(), p2, p3), 16);
}

#endif

/// A block has 16 different values: its products are computed once, and looked up.
template <class T>
void decode_four_bits(const std::uint8_t* codes, const float* table, float scale, T* out, std::int64_t count) {
  T products[16];
  for_vectors(16, [&](std::size_t i, auto extent)
                      HWY_ATTR { store(hn::Mul(load(table + i, extent), splat(scale)), products + i, extent); });
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  ByteVec planes[sizeof(T)];
  for (std::size_t i = 0; i < sizeof(T); ++i) planes[i] = plane(products, i);
  const ByteVec low = hn::Set(Bytes(), 15);
  for (; i + 32 <= count; i += 32) {
    const ByteVec pairs = hn::LoadU(Bytes(), codes + i / 2);
    const ByteVec first = hn::ShiftRight<4>(pairs), second = hn::And(pairs, low);
    look_up(planes, hn::InterleaveLower(Bytes(), first, second), out + i);
    look_up(planes, hn::InterleaveUpper(Bytes(), first, second), out + i + 16);
  }
#endif
  for (; i < count; ++i) out[i] = products[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15];
}

template <class Code>
using CodeTag = hn::Rebind<Code, Floats>;

template <class Code>
HWY_INLINE hn::Vec<CodeTag<Code>> load_codes(const Code* p, Whole) {
  return hn::LoadU(CodeTag<Code>(), p);
}
template <class Code>
HWY_INLINE hn::Vec<CodeTag<Code>> load_codes(const Code* p, Part part) {
  Code lanes[kMaxLanes] = {};
  std::memcpy(lanes, p, part.count);
  return hn::LoadU(CodeTag<Code>(), lanes);
}

template <class T>
void decode_int8(const std::int8_t* codes, float largest, T* out, std::int64_t count) {
  constexpr float kOf127 = 0.007874015718698502F;  // as bitsandbytes has 1/127
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto number = hn::ConvertTo(Floats(), hn::PromoteTo(CodeTag<std::int32_t>(), load_codes(codes + i, extent)));
    store(hn::Mul(hn::Mul(number, splat(largest)), splat(kOf127)), out + i, extent);
  });
}

template <class T>
void decode_group(const std::uint8_t* codes, float zero, float scale, T* out, std::int64_t count) {
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto code = hn::ConvertTo(Floats(), hn::PromoteTo(CodeTag<std::int32_t>(), load_codes(codes + i, extent)));
    store(hn::Mul(hn::Sub(code, splat(zero)), splat(scale)), out + i, extent);
  });
}

/// e4m3 widened to fp32: exponent and mantissa moved to their places, then times 2^(127 - 7), which keeps subnormals exact.
template <class T>
void decode_fp8(const std::uint8_t* codes, float scale, T* out, std::int64_t count) {
  constexpr float kBias = 0x1p120F;
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto bits = hn::PromoteTo(Words(), load_codes(codes + i, extent));
    const auto magnitude = hn::ShiftLeft<20>(hn::And(bits, hn::Set(Words(), 0x7F)));
    const auto sign = hn::ShiftLeft<24>(hn::And(bits, hn::Set(Words(), 0x80)));
    const Vec number = hn::Mul(hn::BitCast(Floats(), magnitude), splat(kBias));
    store(hn::Mul(hn::Or(number, hn::BitCast(Floats(), sign)), splat(scale)), out + i, extent);
  });
}

QuantizedKernels<float> quantized_kernels_f32() {
  return {&decode_four_bits<float>, &decode_int8<float>, &decode_fp8<float>, &decode_group<float>};
}
QuantizedKernels<Bf16> quantized_kernels_bf16() {
  return {&decode_four_bits<Bf16>, &decode_int8<Bf16>, &decode_fp8<Bf16>, &decode_group<Bf16>};
}

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {

HWY_EXPORT(quantized_kernels_f32);
HWY_EXPORT(quantized_kernels_bf16);

template <>
QuantizedKernels<float> quantized_kernels() {
  return HWY_DYNAMIC_DISPATCH(quantized_kernels_f32)();
}
template <>
QuantizedKernels<Bf16> quantized_kernels() {
  return HWY_DYNAMIC_DISPATCH(quantized_kernels_bf16)();
}

}  // namespace qft::ops::cpu
#endif
