// Maps pairs of tokens to the rank of their merge. Internal to the module.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace qft::tokenizer
