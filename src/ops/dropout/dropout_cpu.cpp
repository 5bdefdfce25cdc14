// Dropout with Philox4x32-10: a vector of counters at a time; each counter decides eight features.
#define HWY_TARGET_INCLUDE "ops/dropout/dropout_cpu.cpp"
#include "qft/ops/cpu/kernels.h"

#include <algorithm>

#include "../common/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace qft::ops::cpu {
namespace HWY_NAMESPACE {

using Counters = hn::CappedTag<std::uint64_t, kMaxLanes / 2>;
using CounterVec = hn::Vec<Counters>;

/// Multiplies the low words of a and b to 64 bits; ignores their high words.
HWY_INLINE CounterVec multiply(CounterVec a, CounterVec b) {
  return hn::MulEven(hn::BitCast(Words(), a), hn::BitCast(Words(), b));
}

/// Returns the random words of counters {first + lane, position, id, id >> 32} in feature order: two pairs per lane.
HWY_INLINE void random_words(std::uint64_t first, std::uint32_t position, std::uint64_t id, PhiloxKey key, std::uint64_t* pairs) {
  const Counters d;
  const CounterVec m0 = hn::Set(d, kPhiloxMultiplier0), m1 = hn::Set(d, kPhiloxMultiplier1);
  const CounterVec low = hn::Set(d, 0xFFFFFFFFU);
  CounterVec c0 = hn::Iota(d, first), c1 = hn::Set(d, position), c2 = hn::Set(d, id), c3 = hn::Set(d, id >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const CounterVec p0 = multiply(c0, m0), p1 = multiply(c2, m1);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, key[0]));
    c1 = p1;
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, key[1]));
    c3 = p0;
    key[0] += kPhiloxWeyl0;
    key[1] += kPhiloxWeyl1;
  }
  const CounterVec first_pair = hn::Or(hn::And(c0, low), hn::ShiftLeft<32>(c1));
  const CounterVec second_pair = hn::Or(hn::And(c2, low), hn::ShiftLeft<32>(c3));
  hn::StoreInterleaved2(first_pair, second_pair, d, pairs);
}

template <class T>
void dropout_rows(const Dropout<T>& a, std::int64_t begin, std::int64_t end) {
  HWY_ALIGN std::uint64_t pairs[kMaxLanes];
  std::uint16_t halves[5 * kMaxLanes] = {};  // vectors that start behind `skipped` reach beyond the counters
  const std::size_t counters = hn::Lanes(Counters()), features = kCounterFeatures * counters;
  const Vec scale = splat(a.scale);
  const auto threshold = hn::Set(Words(), a.threshold);
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t row = r * a.width;
    const auto skipped = static_cast<std::size_t>(a.skipped), width = skipped + static_cast<std::size_t>(a.width);
    for (std::size_t first = 0; first < width; first += features) {
      random_words(a.first_counter + first / kCounterFeatures, static_cast<std::uint32_t>(a.positions[r]),
                   static_cast<std::uint64_t>(a.sample_ids[r]), a.key, pairs);
      std::memcpy(halves, pairs, features * sizeof(std::uint16_t));
      const std::size_t from = first == 0 ? skipped : 0, at = static_cast<std::size_t>(row) + first + from - skipped;
      for_vectors(std::min(features, width - first) - from, [&](std::size_t i, auto extent) HWY_ATTR {
        const auto drop =
            hn::RebindMask(Floats(), hn::Lt(hn::PromoteTo(Words(), hn::LoadU(Halves(), halves + from + i)), threshold));
        const auto dropped = [&](const T* in)
                                 HWY_ATTR { return hn::IfThenZeroElse(drop, hn::Mul(load(in + at + i, extent), scale)); };
        if (a.in != nullptr) store(dropped(a.in), a.out + at + i, extent);
        if (a.g != nullptr) store(hn::Add(dropped(a.g), load(a.gx + at + i, extent)), a.gx + at + i, extent);
      });
    }
  }
}

QFT_TARGET_KERNELS(DropoutKernels, dropout_kernels, &dropout_rows<T>);

}  // namespace HWY_NAMESPACE
}  // namespace qft::ops::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace qft::ops::cpu {
QFT_EXPORT_KERNELS(DropoutKernels, dropout_kernels);
}  // namespace qft::ops::cpu
#endif
