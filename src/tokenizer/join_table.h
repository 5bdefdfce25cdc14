// Tells which neighbouring characters a merge may join. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "merge_table.h"
#include "unicode.h"
#include "vocabulary.h"

namespace qft::tokenizer {

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
