// Packs whole items into rows of a fixed number of tokens, planned from the items' lengths alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace qft::loader {

/// Decides which items share a row. The pattern (how many rows, and the lengths in each) is made once per run by best fit: an
/// item goes into the fullest row with room for it. Long items come first, by descending length, then the short ones in shuffled
/// order, so that rows stay mixed. In each epoch every place of the pattern gets another item of that length. So the number of
/// rows is the same in every epoch, and a row is found without planning the epoch. Every item lies in exactly one row. Immutable,
/// thread-safe. 8 bytes of memory per item.
class RowPlan {
 public:
  /// lengths[i] in [1, row_tokens] is item i's number of tokens; throws ConfigError with the first item that is longer. Without
  /// `shuffle`: best fit in the items' own order, the same rows in each epoch.
  RowPlan(std::span<const std::int32_t> lengths, std::int32_t row_tokens, std::uint64_t seed, bool shuffle);

  std::int64_t rows() const { return static_cast<std::int64_t>(row_offsets_.size()) - 1; }
  std::int32_t row_tokens() const { return row_tokens_; }
  /// Returns the maximum number of items in a row; the same in every epoch.
  std::int64_t max_items_per_row() const;
  /// Returns the tokens of all items divided by rows() * row_tokens.
  double efficiency() const;

  /// Appends to `items` the items at position `position` of [0, rows()) in `epoch`'s order of rows.
  void append_row(std::uint64_t epoch, std::int64_t position, std::vector<std::int64_t>& items) const;

 private:
  void group_by_length(std::span<const std::int32_t> lengths);
  std::vector<std::uint32_t> placement_order() const;
  void place(std::span<const std::uint32_t> order);
  std::int32_t length_at(std::uint32_t index) const;

  std::int32_t row_tokens_;
  std::uint64_t seed_;
  bool shuffle_;
  std::vector<std::uint32_t> by_length_;    // items, grouped by ascending length, in their own order within a group
  std::vector<std::uint32_t> class_begin_;  // [row_tokens + 2]: begin of each length's items in by_length_
  std::vector<std::int64_t> row_offsets_;   // [rows + 1] into row_indices_
  std::vector<std::uint32_t> row_indices_;  // row by row: indices into by_length_
  std::int64_t total_tokens_ = 0;
};

}  // namespace qft::loader
