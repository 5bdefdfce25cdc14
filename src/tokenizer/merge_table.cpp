#include "merge_table.h"

#include <algorithm>
#include <bit>

namespace qft::tokenizer {

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

}  // namespace qft::tokenizer
