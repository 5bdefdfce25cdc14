// Remembers the ids of words that were seen lately; bounded, one per thread. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace qft::tokenizer {

/// Masks for the bytes [skipped, skipped + 8) of a key of n bytes, by n.
constexpr std::array<std::uint64_t, 16> key_masks(std::size_t skipped) {
  std::array<std::uint64_t, 16> masks{};
  for (std::size_t n = skipped; n < masks.size(); ++n)
    masks[n] = n - skipped >= 8 ? ~0ull : (1ull << 8 * (n - skipped)) - 1;
  return masks;
}

/// Two tables of two-way sets: words of up to 15 bytes and 3 ids in half a cache line, others of up to 32
/// bytes and 6 ids in one. A full set drops its older word.
class WordCache {
 public:
  static constexpr std::size_t kShortBytes = 15, kLongBytes = 32;

  struct ShortKey {
    std::uint64_t low, high;  ///< the bytes, zero-filled; the top byte is the length
  };
  struct alignas(32) ShortEntry {
    ShortKey key;
    std::int32_t ids[3];
    std::int32_t count;
  };
  struct LongKey {
    std::array<std::uint64_t, 4> bytes;
    std::uint64_t size;
  };
  struct alignas(64) LongEntry {
    std::array<std::uint64_t, 4> bytes;
    std::int32_t ids[6];
    std::uint32_t size, count;
  };

  /// The key of `size` bytes (1 to 15) at `p`; reads 16 where that many lie before `limit`.
  static ShortKey short_key(const char* p, std::size_t size, const char* limit) {
    ShortKey key{0, 0};
    if (limit - p >= 16) [[likely]] {
      std::memcpy(&key, p, 16);
      key.low &= kLowMask[size];
      key.high &= kHighMask[size];
    } else {
      std::memcpy(&key, p, size);
    }
    key.high |= static_cast<std::uint64_t>(size) << 56;
    return key;
  }
  /// Where find() will look; asks the memory for it.
  const ShortEntry* prefetch(const ShortKey& key) const {
    const ShortEntry* set = &short_[slot(key)];
    __builtin_prefetch(set);
    return set;
  }
  static const ShortEntry* find(const ShortEntry* set, const ShortKey& key) {
    for (int way = 0; way < 2; ++way)
      if (set[way].key.low == key.low && set[way].key.high == key.high) return &set[way];
    return nullptr;
  }
  void insert(const ShortKey& key, const std::vector<std::int32_t>& ids) {
    ShortEntry* set = &short_[slot(key)];
    set[1] = set[0];
    set[0].key = key;
    set[0].count = static_cast<std::int32_t>(ids.size());
    std::memcpy(set[0].ids, ids.data(), sizeof(std::int32_t) * ids.size());
  }

  static LongKey long_key(const char* p, std::size_t size) {
    LongKey key{{}, size};
    std::memcpy(key.bytes.data(), p, size);
    return key;
  }
  const LongEntry* find(const LongKey& key) const {
    const LongEntry* set = &long_[slot(key)];
    for (int way = 0; way < 2; ++way)
      if (set[way].size == key.size && set[way].bytes == key.bytes) return &set[way];
    return nullptr;
  }
  void insert(const LongKey& key, const std::vector<std::int32_t>& ids) {
    LongEntry* set = &long_[slot(key)];
    set[1] = set[0];
    set[0].bytes = key.bytes;
    set[0].size = static_cast<std::uint32_t>(key.size);
    set[0].count = static_cast<std::uint32_t>(ids.size());
    std::memcpy(set[0].ids, ids.data(), sizeof(std::int32_t) * ids.size());
  }

 private:
  static constexpr int kShortBits = 17, kLongBits = 13;
  static constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;
  static constexpr auto kLowMask = key_masks(0), kHighMask = key_masks(8);

  static std::size_t slot(const ShortKey& key) {
    const std::uint64_t h = (key.low ^ key.high * 0xD6E8FEB86659FD93ull) * kMix;
    return (h ^ h >> 29) * kMix >> (64 - kShortBits) & ~std::size_t{1};
  }
  static std::size_t slot(const LongKey& key) {
    std::uint64_t h = key.size;
    for (const std::uint64_t word : key.bytes) h = (h ^ word ^ h >> 31) * kMix;
    return (h ^ h >> 29) * kMix >> (64 - kLongBits) & ~std::size_t{1};
  }

  std::vector<ShortEntry> short_ = std::vector<ShortEntry>(std::size_t{1} << kShortBits);
  std::vector<LongEntry> long_ = std::vector<LongEntry>(std::size_t{1} << kLongBits);
};

}  // namespace qft::tokenizer
