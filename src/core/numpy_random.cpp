#include "qft/core/numpy_random.h"

#include <bit>
#include <numeric>

namespace qft::numpy {
namespace {

// numpy.random.SeedSequence: mixes entropy words into a pool of four and derives 64-bit words from it.
class SeedSequence {
 public:
  explicit SeedSequence(std::uint64_t seed) {
    const std::array<std::uint32_t, 4> entropy{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32), 0, 0};
    std::uint32_t constant = 0x43b0d7e5;
    const auto hash = [&constant](std::uint32_t value) {
      value ^= constant;
      constant *= 0x931e8875;
      value *= constant;
      return value ^ (value >> 16);
    };
    for (std::size_t i = 0; i < pool_.size(); ++i) pool_[i] = hash(entropy[i]);
    for (std::size_t from = 0; from < pool_.size(); ++from)
      for (std::size_t to = 0; to < pool_.size(); ++to)
        if (from != to) pool_[to] = mix(pool_[to], hash(pool_[from]));
  }

  std::array<std::uint64_t, 4> state() const {
    std::array<std::uint64_t, 4> words{};
    std::uint32_t constant = 0x8b51f9dd;
    for (std::size_t i = 0; i < 2 * words.size(); ++i) {
      std::uint32_t value = pool_[i % pool_.size()] ^ constant;
      constant *= 0x58f38ded;
      value *= constant;
      words[i / 2] |= static_cast<std::uint64_t>(value ^ (value >> 16)) << (32 * (i % 2));
    }
    return words;
  }

 private:
  static std::uint32_t mix(std::uint32_t x, std::uint32_t y) {
    const std::uint32_t value = 0xca01f9ddu * x - 0x4973f715u * y;
    return value ^ (value >> 16);
  }
  std::array<std::uint32_t, 4> pool_{};
};

constexpr unsigned __int128 wide(std::uint64_t high, std::uint64_t low) {
  return static_cast<unsigned __int128>(high) << 64 | low;
}

std::vector<std::int64_t> iota_vector(std::int64_t n) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), INT64_C(0));
  return values;
}

}  // namespace

std::uint64_t LegacyRandom::below(std::uint64_t n) {
  const std::uint64_t mask = std::bit_ceil(n) - 1;
  for (;;) {
    std::uint64_t value = engine_();
    if (mask > UINT32_MAX) value = value << 32 | engine_();
    if (value &= mask; value < n) return value;
  }
}

std::vector<std::int64_t> LegacyRandom::permutation(std::int64_t n) {
  std::vector<std::int64_t> values = iota_vector(n);
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  return values;
}

std::vector<std::int64_t> LegacyRandom::choice(std::int64_t n, std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count), 0);
  if (n > 1)
    for (std::int64_t& value : values) value = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(n)));
  return values;
}

Generator::Generator(std::uint64_t seed) {
  const auto words = SeedSequence(seed).state();
  increment_ = wide(words[2], words[3]) << 1 | 1;
  next64();
  state_ += wide(words[0], words[1]);
  next64();
}

std::uint64_t Generator::next64() {
  state_ = state_ * wide(2549297995355413924u, 4865540595714422341u) + increment_;
  const auto high = static_cast<std::uint64_t>(state_ >> 64), low = static_cast<std::uint64_t>(state_);
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

std::uint32_t Generator::next32() {
  if (half_) {
    const std::uint32_t value = *half_;
    half_.reset();
    return value;
  }
  const std::uint64_t both = next64();
  half_ = static_cast<std::uint32_t>(both >> 32);
  return static_cast<std::uint32_t>(both);
}

std::uint64_t Generator::below(std::uint64_t n) {
  const std::uint64_t mask = std::bit_ceil(n) - 1;
  for (;;)
    if (const std::uint64_t value = (mask > UINT32_MAX ? next64() : next32()) & mask; value < n) return value;
}

std::vector<std::int64_t> Generator::permutation(std::int64_t n) {
  std::vector<std::int64_t> values = iota_vector(n);
  for (std::size_t i = values.size(); i-- > 1;) std::swap(values[i], values[below(i + 1)]);
  return values;
}

std::size_t Generator::choice(std::span<const double> probabilities) {
  const double total = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  const double u = static_cast<double>(next64() >> 11) * 0x1.0p-53;
  double sum = 0;
  for (std::size_t i = 0; i + 1 < probabilities.size(); ++i)
    if (sum += probabilities[i]; u < sum / total) return i;
  return probabilities.size() - 1;
}

}  // namespace qft::numpy
