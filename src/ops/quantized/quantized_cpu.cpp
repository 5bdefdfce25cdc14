// Decodes quantised weights to numbers.
#define HWY_TARGET_INCLUDE "ops/quantized/quantized_cpu.cpp"
#include "qft/ops/cpu/quantized_kernels.h"
#include "qft/ops/quantized_tables.h"

#include <type_traits>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using Bytes = hn::FixedTag<std::uint8_t, 16>;
using ByteVec = hn::Vec<Bytes>;

/// planes[i] = byte i of each of the table's 16 numbers.
HWY_INLINE void make_planes(const Bf16* table, ByteVec* planes) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
  const ByteVec a = hn::LoadU(Bytes(), bytes), b = hn::LoadU(Bytes(), bytes + 16);
  planes[0] = hn::ConcatEven(Bytes(), b, a);
  planes[1] = hn::ConcatOdd(Bytes(), b, a);
}
HWY_INLINE void make_planes(const float* table, ByteVec* planes) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
  const auto load = [&](std::size_t i) HWY_ATTR { return hn::LoadU(Bytes(), bytes + 16 * i); };
  const auto even = [](ByteVec high, ByteVec low) HWY_ATTR { return hn::ConcatEven(Bytes(), high, low); };
  const auto odd = [](ByteVec high, ByteVec low) HWY_ATTR { return hn::ConcatOdd(Bytes(), high, low); };
  const ByteVec v0 = load(0), v1 = load(1), v2 = load(2), v3 = load(3);
  const ByteVec even0 = even(v1, v0), even1 = even(v3, v2), odd0 = odd(v1, v0), odd1 = odd(v3, v2);
  planes[0] = even(even1, even0);
  planes[1] = even(odd1, odd0);
  planes[2] = odd(even1, even0);
  planes[3] = odd(odd1, odd0);
}

/// Looks up 16 numbers, byte by byte. Assumes little-endian, as on all targets.
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

/// Looks up 32 numbers at a time, as pairs, if a register has 16 lanes of 32 bits. Returns how many numbers are done.
HWY_INLINE std::int64_t look_up_pairs([[maybe_unused]] const Bf16* products, [[maybe_unused]] const std::uint8_t* codes,
                                      [[maybe_unused]] Bf16* out, [[maybe_unused]] std::int64_t count) {
  std::int64_t i = 0;
#if HWY_TARGET <= HWY_AVX3
  const hn::FixedTag<std::uint32_t, 16> pairs;
  const hn::Rebind<std::uint16_t, decltype(pairs)> halves;
  const hn::Rebind<std::uint8_t, decltype(pairs)> bytes;
  const auto table = hn::PromoteTo(pairs, hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(products)));
  const auto low = hn::Set(pairs, 15);
  for (; i + 32 <= count; i += 32) {
    const auto codes_of_pairs = hn::PromoteTo(pairs, hn::LoadU(bytes, codes + i / 2));
    const auto first = hn::TableLookupLanes(table, hn::IndicesFromVec(pairs, hn::ShiftRight<4>(codes_of_pairs)));
    const auto second = hn::TableLookupLanes(table, hn::IndicesFromVec(pairs, hn::And(codes_of_pairs, low)));
    hn::StoreU(hn::BitCast(hn::Repartition<std::uint16_t, decltype(pairs)>(), hn::Or(first, hn::ShiftLeft<16>(second))),
               hn::Repartition<std::uint16_t, decltype(pairs)>(), reinterpret_cast<std::uint16_t*>(out + i));
  }
#endif
  return i;
}
HWY_INLINE std::int64_t look_up_pairs(const float* /*products*/, const std::uint8_t* /*codes*/, float* /*out*/,
                                      std::int64_t /*count*/) {
  return 0;
}

#endif

/// A quantisation block has only 16 different values: computes the 16 products once and looks them up.
template <class T>
void decode_four_bits(const std::uint8_t* codes, const float* table, float scale, T* out, std::int64_t count) {
  T products[16];
  for_vectors(16, [&](std::size_t i, auto extent)
                      HWY_ATTR { store(hn::Mul(load(table + i, extent), splat(scale)), products + i, extent); });
  std::int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  i = look_up_pairs(products, codes, out, count);
  if (i == count) return;
  ByteVec planes[sizeof(T)];
  make_planes(products, planes);
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
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto number = hn::ConvertTo(Floats(), hn::PromoteTo(CodeTag<std::int32_t>(), load_codes(codes + i, extent)));
    store(hn::Mul(hn::Mul(number, splat(largest)), splat(kInverse127)), out + i, extent);
  });
}

template <class T>
void decode_group(const std::uint8_t* codes, float zero, float scale, T* out, std::int64_t count) {
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto code = hn::ConvertTo(Floats(), hn::PromoteTo(CodeTag<std::int32_t>(), load_codes(codes + i, extent)));
    store(hn::Mul(hn::Sub(code, splat(zero)), splat(scale)), out + i, extent);
  });
}

/// Reads e4m3 as fp16, which has one more exponent bit and a bias larger by 8: gives number / 256, and maps subnormals to
/// subnormals. Widening fp16 subnormals is fast, unlike fp32 subnormals.
template <class T>
void decode_fp8(const std::uint8_t* codes, float scale, T* out, std::int64_t count) {
  const CodeTag<std::int16_t> halves;
  const auto* from = reinterpret_cast<const std::int8_t*>(codes);
  const Vec factor = splat(scale * 256.0F);
  for_vectors(static_cast<std::size_t>(count), [&](std::size_t i, auto extent) HWY_ATTR {
    const auto moved = hn::ShiftLeft<7>(hn::PromoteTo(halves, load_codes(from + i, extent)));
    const auto bits = hn::And(moved, hn::Set(halves, static_cast<std::int16_t>(0xBF80)));  // the sign bit appears twice
    const Vec number = hn::PromoteTo(Floats(), hn::BitCast(CodeTag<hwy::float16_t>(), bits));
    store(hn::Mul(number, factor), out + i, extent);
  });
}

#if HWY_TARGET != HWY_SCALAR
/// Transposes a square of kRows vectors with kRows elements each. Each round interleaves the upper half of the rows with the
/// lower half.
template <class T, int kRows>
HWY_INLINE void transpose_square(ByteVec* v) {
  const hn::FixedTag<std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>, kRows> elements;
  for (int round = 1; round < kRows; round *= 2) {
    ByteVec t[kRows];
    for (int i = 0; i < kRows / 2; ++i) {
      const auto a = hn::BitCast(elements, v[i]), b = hn::BitCast(elements, v[i + kRows / 2]);
      t[2 * i] = hn::BitCast(Bytes(), hn::InterleaveLower(elements, a, b));
      t[2 * i + 1] = hn::BitCast(Bytes(), hn::InterleaveUpper(elements, a, b));
    }
    for (int i = 0; i < kRows; ++i) v[i] = t[i];
  }
}
#endif

/// Moves a column of all rows at once: moving single numbers would take as long as the rest of decoding.
template <class T>
void reorder(const T* from, const std::int32_t* order, T* room, T* out, std::int64_t count) {
  constexpr std::int64_t kRows = kReorderedRows<T>;
  const auto column = [&](std::int64_t i) { return room + kRows * i; };
  std::int64_t i = 0, j = 0;
#if HWY_TARGET != HWY_SCALAR
  ByteVec v[kRows];
  const auto load = [](const T* p) HWY_ATTR { return hn::LoadU(Bytes(), reinterpret_cast<const std::uint8_t*>(p)); };
  const auto store = [](ByteVec x, T* p) HWY_ATTR { hn::StoreU(x, Bytes(), reinterpret_cast<std::uint8_t*>(p)); };
  for (; i + kRows <= count; i += kRows) {
    for (std::int64_t r = 0; r < kRows; ++r) v[r] = load(from + r * count + i);
    transpose_square<T, kRows>(v);
    for (std::int64_t k = 0; k < kRows; ++k) store(v[k], column(order[i + k]));
  }
#endif
  for (; i < count; ++i)
    for (std::int64_t r = 0; r < kRows; ++r) column(order[i])[r] = from[r * count + i];
#if HWY_TARGET != HWY_SCALAR
  for (; j + kRows <= count; j += kRows) {
    for (std::int64_t k = 0; k < kRows; ++k) v[k] = load(column(j + k));
    transpose_square<T, kRows>(v);
    for (std::int64_t r = 0; r < kRows; ++r) store(v[r], out + r * count + j);
  }
#endif
  for (; j < count; ++j)
    for (std::int64_t r = 0; r < kRows; ++r) out[r * count + j] = column(j)[r];
}

template <class T>
QuantizedKernels<T> all_kernels() {
  return {&decode_four_bits<T>, &decode_int8<T>, &decode_fp8<T>, &decode_group<T>, &reorder<T>};
}
QFT_TARGET_KERNELS(QuantizedKernels, quantized_kernels, all_kernels<T>());

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(QuantizedKernels, quantized_kernels);
}  // namespace qft::ops::cpu
#endif
