// Maps pairs of tokens to the rank of their merge, and tells which neighbouring characters a merge may join. Internal to the
// module.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "unicode.h"
#include "vocabulary.h"

namespace qft::tokenizer {

/// A merge; its rank is its position in the list.
struct Merge {
  std::int32_t left, right, merged;
};

/// True if every merge ranks after all merges that make one of its sides. All ids must be below `tokens`.
bool in_order(const std::vector<Merge>& merges, std::int32_t tokens);

/// Maps (left id, right id) to the rank of the merge; a smaller rank is merged first. Open addressing, one word per entry,
/// behind a bitmap small enough for the level-2 cache: most requested pairs have no merge.
class MergeTable {
 public:
  static constexpr std::int32_t kNone = INT32_MAX;
  static constexpr std::uint32_t kMaxMerges = 1u << 22;

  explicit MergeTable(std::size_t merges = 0);
  /// Inserts a pair; an existing pair gets the new rank.
  void insert(std::int32_t left, std::int32_t right, std::uint32_t rank);
  /// Returns the rank, or kNone.
  std::int32_t find(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = pack(left, right);
    const std::uint64_t hash = key * kMultiplier;
    const std::uint64_t bit = hash >> bit_shift_;
    if (!(bits_[bit >> 6] >> (bit & 63) & 1)) return kNone;
    for (std::size_t i = hash >> slot_shift_;; i = (i + 1) & mask_) {
      const std::uint64_t entry = entries_[i];
      if (entry >> kRankBits == key) return static_cast<std::int32_t>(entry & (kMaxMerges - 1));
      if (entry == kEmpty) return kNone;
    }
  }

 private:
  static constexpr int kRankBits = 22;
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  static std::uint64_t pack(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(left) << 21 | static_cast<std::uint64_t>(right);
  }

  std::vector<std::uint64_t> entries_, bits_;
  std::size_t mask_ = 0;
  int slot_shift_ = 63, bit_shift_ = 63;
};

/// Tells where a word may be cut so that its pieces, encoded separately, give the ids of the whole word: between two characters
/// that no merge joins. A merge across a character boundary joins two sides: all or the last bytes of the character before the
/// boundary, and all or the first bytes of the character after it. The table holds these pairs. Words in scripts without spaces
/// fall into pieces of one to three characters, which recur far more often than the words.
class JoinTable {
 public:
  /// Creates the empty table: any two characters may be joined.
  JoinTable() = default;
  JoinTable(const Vocabulary& vocabulary, const std::vector<Merge>& merges);

  bool empty() const { return bits_.empty(); }

  /// Returns false only if no merge joins `left`, the character that ends at `boundary`, to `right`, which begins there. The
  /// table must not be empty.
  bool may_join(const char* boundary, CodePoint left, CodePoint right) const {
    return has(left.value, right.value) || (may_join_parts(boundary) && parts_join(boundary, left, right));
  }

 private:
  static constexpr std::uint64_t kMix = 0x9E3779B97F4A7C15ull;

  /// One side of a pair: a code point, or the bytes of a part of a character plus a mark.
  using Side = std::uint32_t;
  static Side part(std::string_view bytes);

  void insert(Side left, Side right) {
    const std::uint64_t bit = bit_of(left, right);
    bits_[bit >> 6] |= std::uint64_t{1} << (bit & 63);
  }
  bool has(Side left, Side right) const {
    const std::uint64_t bit = bit_of(left, right);
    return bits_[bit >> 6] >> (bit & 63) & 1;
  }
  std::uint64_t bit_of(Side left, Side right) const { return (static_cast<std::uint64_t>(left) << 32 | right) * kMix >> shift_; }
  /// Returns the index in part_bits_ for the bytes on both sides of `boundary`.
  static unsigned part_bit(const char* boundary) {
    return static_cast<unsigned char>(boundary[-1]) << 8 | static_cast<unsigned char>(boundary[0]);
  }
  bool may_join_parts(const char* boundary) const {
    const unsigned bit = part_bit(boundary);
    return part_bits_[bit >> 6] >> (bit & 63) & 1;
  }
  bool parts_join(const char* boundary, CodePoint left, CodePoint right) const;

  std::vector<std::uint64_t> bits_;  ///< Bloom filter of the pairs
  int shift_ = 0;
  std::array<std::uint64_t, 1024> part_bits_{};  ///< byte pairs at the boundary of pairs with an incomplete side
};

}  // namespace qft::tokenizer
