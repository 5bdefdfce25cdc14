#include "order.h"

#include "qft/core/error.h"

#include <algorithm>
#include <bit>

namespace qft::loader {

namespace {

/// The finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGamma = 0x9e3779b97f4a7c15u;

/// With fewer bits, 8 rounds are not uniform over all orders, so small sizes walk a larger domain.
constexpr int kMinBits = 8;

}  // namespace

Order::Order(std::int64_t size, std::uint64_t seed, std::uint64_t epoch, std::uint64_t stream) : size_(size) {
  QFT_ASSERT(size >= 0, "size is {}", size);
  const int bits =
      std::max(kMinBits, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1) - 1))));
  right_bits_ = bits - bits / 2;
  right_mask_ = (std::uint64_t{1} << right_bits_) - 1;
  left_mask_ = (std::uint64_t{1} << (bits / 2)) - 1;
  std::uint64_t state = mix(mix(mix(seed + kGamma) ^ (epoch + kGamma)) ^ (stream + kGamma));
  for (std::uint64_t& key : keys_) key = mix(state += kGamma);
}

std::uint64_t Order::permute(std::uint64_t x) const {
  std::uint64_t left = x >> right_bits_, right = x & right_mask_;
  for (int round = 0; round < kRounds; round += 2) {
    left ^= mix(right + keys_[round]) & left_mask_;
    right ^= mix(left + keys_[round + 1]) & right_mask_;
  }
  return (left << right_bits_) | right;
}

std::int64_t Order::operator()(std::int64_t position) const {
  QFT_ASSERT(position >= 0 && position < size_, "position {} of {}", position, size_);
  if (size_ == 1) return 0;
  auto x = static_cast<std::uint64_t>(position);
  do x = permute(x);
  while (x >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(x);
}

}  // namespace qft::loader
