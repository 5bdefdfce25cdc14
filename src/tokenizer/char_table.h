// Characters whose bytes always merge first. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "merge_table.h"
#include "vocabulary.h"

namespace qft::tokenizer {

/// Holds the multi-byte characters that are tokens and that byte-pair encoding always completes before it merges any part of
/// them with a neighbour. Encoding may then begin with the whole character, which saves most merges in Chinese text. Why this
/// is exact: if every merge ranks after the merges that make its two sides, greedy encoding is one pass over the merges in rank
/// order. Suppose that a character's own merges complete it by rank R, and every merge of one of its parts with a neighbour
/// ranks after R. Then the character is whole after R in any context, and no other merge has touched it before. Merges with a
/// neighbour depend on the neighbour's adjoining byte: hence the masks.
class CharTable {
 public:
  CharTable() = default;
  /// `byte_ids`: tokens of the 256 bytes, kNoId if missing. The table stays empty if the merges are not ordered as above.
  CharTable(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const MergeTable& table,
            const std::array<std::int32_t, 256>& byte_ids);

  bool empty() const { return entries_.empty(); }

  /// Returns the token of the character of `size` bytes (2 or more) at `at` in `word`, or kNoId if its bytes must be merged one
  /// by one.
  std::int32_t find(std::string_view word, std::size_t at, std::uint32_t code_point, std::uint32_t size) const {
    const std::uint32_t index = code_point < index_.size() ? index_[code_point] : 0;
    if (index == 0) return kNoId;
    const Entry& entry = entries_[index];
    const bool left_ok = at == 0 || !(entry.bad_left & neighbour_bit(word[at - 1]));
    const bool right_ok = at + size >= word.size() || !(entry.bad_right & neighbour_bit(word[at + size]));
    return left_ok && right_ok ? entry.id : kNoId;
  }

 private:
  struct Entry {
    std::int32_t id = kNoId;
    std::uint64_t bad_left = 0;   ///< neighbour_bit() of bytes that must not precede the character
    std::uint64_t bad_right = 0;  ///< neighbour_bit() of bytes that must not follow the character
  };
  /// The byte before a character is ASCII or 0x80 to 0xBF, the byte after it ASCII or 0xC2 to 0xF4. All ASCII bytes share a bit
  /// with 0x80 and 0xC0: a false alarm costs time, but stays exact.
  static std::uint64_t neighbour_bit(char byte) {
    const auto b = static_cast<unsigned char>(byte);
    return std::uint64_t{1} << (b < 0x80 ? 0 : b & 63);
  }
  struct Rules;
  void add(const Vocabulary& vocabulary, std::int32_t id, const Rules& rules, const MergeTable& table,
           const std::vector<Merge>& merges, const std::array<std::int32_t, 256>& byte_ids);

  std::vector<std::uint16_t> index_;  ///< by code point of the basic plane; 0 if there is no entry
  std::vector<Entry> entries_;
};

}  // namespace qft::tokenizer
