// Tables of words and their ids. Internal to the module.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// The bytes of a word in `words` integers, zero-filled; the top byte is the word's length.
template <int words>
struct WordKey {
  static constexpr std::size_t kMaxBytes = 8 * words - 1;
  std::array<std::uint64_t, words> bytes{};

  bool operator==(const WordKey& other) const {  // std::array's operator calls memcmp
    std::uint64_t different = 0;
    for (int i = 0; i < words; ++i) different |= bytes[i] ^ other.bytes[i];
    return different == 0;
  }

  /// Makes the key of a word of 1 to kMaxBytes bytes; reads the key's full length if that ends before `limit`.
  static WordKey of(std::string_view word, const char* limit) {
    WordKey key;
    if (limit - word.data() >= static_cast<std::ptrdiff_t>(sizeof key.bytes)) [[likely]] {
      std::memcpy(&key.bytes, word.data(), sizeof key.bytes);
      for (int i = 0; i < words; ++i) key.bytes[i] &= kMasks[i][word.size()];
    } else {
      std::memcpy(&key.bytes, word.data(), word.size());
    }
    key.bytes.back() |= static_cast<std::uint64_t>(word.size()) << 56;
    return key;
  }

 private:
  /// By word length, the masks of the bytes inside each integer.
  static constexpr auto kMasks = [] {
    std::array<std::array<std::uint64_t, kMaxBytes + 1>, words> masks{};
    for (std::size_t i = 0; i < words; ++i)
      for (std::size_t size = 8 * i; size <= kMaxBytes; ++size)
        masks[i][size] = size - 8 * i >= 8 ? ~0ull : (1ull << 8 * (size - 8 * i)) - 1;
    return masks;
  }();
};

/// A table with sets of two words; a full set drops the older one. An entry is half a cache line or a whole one.
template <int words, int max_ids>
class WordTable {
 public:
  using Key = WordKey<words>;
  static constexpr std::size_t kMaxIds = max_ids;

  struct alignas(16 * words) Entry {
    Key key;
    std::int32_t ids[max_ids];
    std::int32_t count = 0;
  };

  /// Creates room for 2^bits words.
  explicit WordTable(int bits) : shift_(64 - bits), entries_(std::size_t{1} << bits) {}

  /// Prefetches and returns the set that find() needs.
  const Entry* prefetch(const Key& key) const {
    const Entry* set = &entries_[slot(key)];
    __builtin_prefetch(set);
    return set;
  }
  static const Entry* find(const Entry* set, const Key& key) {
    if (set[0].key == key) return &set[0];
    return set[1].key == key ? &set[1] : nullptr;
  }
  const Entry* find(const Key& key) const { return find(&entries_[slot(key)], key); }

  /// `ids`: at most kMaxIds of them.
  void insert(const Key& key, std::span<const std::int32_t> ids) {
    Entry* set = &entries_[slot(key)];
    set[1] = set[0];
    set[0].key = key;
    set[0].count = static_cast<std::int32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), set[0].ids);
  }

 private:
  static constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;

  std::size_t slot(const Key& key) const {
    std::uint64_t h = 0;
    for (const std::uint64_t word : key.bytes) h = (h ^ word ^ h >> 31) * kMix;
    return (h ^ h >> 29) * kMix >> shift_ & ~std::size_t{1};
  }

  int shift_;
  std::vector<Entry> entries_;
};

using ShortWords = WordTable<2, 3>;  ///< up to 15 bytes and 3 ids
using LongWords = WordTable<4, 7>;   ///< up to 31 bytes and 7 ids

}  // namespace qft::tokenizer
