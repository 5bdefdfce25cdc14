#include "merge_table.h"

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

bool in_order(const std::vector<Merge>& merges, std::int32_t tokens) {
  std::vector<std::int64_t> made(tokens, -1);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) made[merges[rank].merged] = static_cast<std::int64_t>(rank);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto r = static_cast<std::int64_t>(rank);
    if (made[merges[rank].left] >= r || made[merges[rank].right] >= r) return false;
  }
  return true;
}

MergeTable::MergeTable(std::size_t merges) {
  // At most half full; the bitmap has eight bits per entry, so that one pair in eight passes by accident.
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(merges + merges / 2, 64));
  entries_.assign(slots, kEmpty);
  bits_.assign(slots * 8 / 64, 0);
  mask_ = slots - 1;
  slot_shift_ = 64 - std::countr_zero(slots);
  bit_shift_ = slot_shift_ - 3;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, std::uint32_t rank) {
  const std::uint64_t key = pack(left, right);
  const std::uint64_t hash = key * kMultiplier;
  std::size_t i = hash >> slot_shift_;
  while (entries_[i] != kEmpty && entries_[i] >> kRankBits != key) i = (i + 1) & mask_;
  entries_[i] = key << kRankBits | rank;
  const std::uint64_t bit = hash >> bit_shift_;
  bits_[bit >> 6] |= std::uint64_t{1} << (bit & 63);
}

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
