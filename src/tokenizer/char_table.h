// Characters whose bytes always merge first. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "merge_table.h"
#include "vocabulary.h"

namespace qft::tokenizer {

/// A character of two or more bytes that is a token, and that byte-pair encoding completes before it merges
/// any part of it with a neighbour: encoding may then begin with the whole character, which for Chinese text
/// saves most of the merges. Why this is exact: where every merge ranks after those that make its two sides,
/// greedy encoding is one pass over the merges in order of rank. A character that its own merges complete by
/// rank R, while every merge of a part of it with something beside it ranks after R, is whole after R
/// whatever stands around it, and nothing has touched it before. Merges with a neighbour depend on the
/// neighbour's adjoining byte: hence the masks.
class CharTable {
 public:
  CharTable() = default;
  /// `byte_ids`: the tokens of the 256 bytes, kNoId where there is none. Empty where the merges are not ordered as above.
  CharTable(const Vocabulary& vocabulary, const std::vector<Merge>& merges, const MergeTable& table,
            const std::array<std::int32_t, 256>& byte_ids);

  bool empty() const { return entries_.empty(); }

  /// The token of the character of `size` bytes (2 or more) at `at` in `word`, or kNoId where its bytes must
  /// be merged one by one.
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
    std::uint64_t bad_left = 0;   ///< neighbour_bit() of the bytes that may not stand before it
    std::uint64_t bad_right = 0;  ///< neighbour_bit() of the bytes that may not stand after it
  };
  /// The byte before a character is ASCII or 0x80 to 0xBF, the one after it ASCII or 0xC2 to 0xF4. All of
  /// ASCII shares a bit with 0x80 and 0xC0: a false alarm costs time, not exactness.
  static std::uint64_t neighbour_bit(char byte) {
    const auto b = static_cast<unsigned char>(byte);
    return std::uint64_t{1} << (b < 0x80 ? 0 : b & 63);
  }
  struct Rules;
  void add(const Vocabulary& vocabulary, std::int32_t id, const Rules& rules, const MergeTable& table,
           const std::vector<Merge>& merges, const std::array<std::int32_t, 256>& byte_ids);

  std::vector<std::uint16_t> index_;  ///< by code point of the basic plane; 0 where there is no entry
  std::vector<Entry> entries_;
};

}  // namespace qft::tokenizer
