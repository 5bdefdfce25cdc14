#include "join_table.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace qft::tokenizer {
namespace {

/// Filter bits per pair: about one in thirty boundaries that could be cut is kept.
constexpr std::size_t kBitsPerPair = 16;

bool is_complete(std::string_view character) {
  return !is_continuation(character[0]) && character.size() == char_bytes(character[0]);
}

/// Returns the bytes in `token` of the character that contains its last byte.
std::string_view last_char(std::string_view token) {
  std::size_t begin = token.size() - 1;
  while (begin > 0 && is_continuation(token[begin])) --begin;
  return token.substr(begin);
}

/// Returns the bytes in `token` of the character that begins with its first byte.
std::string_view first_char(std::string_view token) {
  return token.substr(0, char_bytes(token[0]));
}

}  // namespace

JoinTable::JoinTable(const Vocabulary& vocabulary, const std::vector<Merge>& merges) {
  std::vector<std::pair<Side, Side>> pairs;
  for (const Merge& merge : merges) {
    std::string_view left = vocabulary.decoded(merge.left), right = vocabulary.decoded(merge.right);
    if (left.empty() || right.empty() || is_continuation(right[0])) continue;
    left = last_char(left);
    right = first_char(right);
    pairs.emplace_back(part(left), part(right));
    if (is_complete(left) && is_complete(right)) continue;
    const char boundary[] = {left.back(), right.front()};
    part_bits_[part_bit(boundary + 1) >> 6] |= std::uint64_t{1} << (part_bit(boundary + 1) & 63);
  }
  const std::size_t bits = std::bit_ceil(std::max<std::size_t>(kBitsPerPair * pairs.size(), 64));
  bits_.assign(bits / 64, 0);
  shift_ = 64 - std::countr_zero(bits);
  for (const auto& [left, right] : pairs) insert(left, right);
}

/// Encodes a part of a character. A part longer than three bytes occurs in no valid UTF-8, so it may collide with another.
JoinTable::Side JoinTable::part(std::string_view bytes) {
  if (is_complete(bytes)) return decode_utf8(bytes.data()).value;
  Side side = 0;
  for (const char byte : bytes) side = side << 8 | static_cast<unsigned char>(byte);
  return side | 1u << 31;
}

bool JoinTable::parts_join(const char* boundary, CodePoint left, CodePoint right) const {
  for (std::size_t before = 1; before <= left.bytes; ++before)
    for (std::size_t after = 1; after <= right.bytes; ++after)
      if (has(part({boundary - before, before}), part({boundary, after}))) return true;
  return false;
}

}  // namespace qft::tokenizer
