#include "qft/loader/row_packing.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "order.h"

namespace qft::loader {

namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
/// Items longer than this part of a row are placed first, by descending length.
constexpr std::int32_t kLongShare = 16;
/// Streams of Order: the pattern, the rows of an epoch, and, from kClassStream on, one for each length.
constexpr std::uint64_t kPatternStream = 1, kRowStream = 2, kClassStream = 16;

/// A set of small integers that finds the smallest member at or above a value in few look-ups: bitmaps of 64, in which each level
/// marks the non-empty words below it.
class SortedBits {
 public:
  explicit SortedBits(std::size_t size) {
    for (auto& level : levels_) {
      size = size / 64 + 1;
      level.resize(size);
    }
  }
  void insert(std::size_t value) {
    for (auto& level : levels_) {
      level[value / 64] |= std::uint64_t{1} << (value % 64);
      value /= 64;
    }
  }
  void erase(std::size_t value) {
    for (auto& level : levels_) {
      level[value / 64] &= ~(std::uint64_t{1} << (value % 64));
      if (level[value / 64] != 0) return;
      value /= 64;
    }
  }
  /// Returns kNone if there is none.
  std::uint32_t at_or_above(std::size_t value) const {
    std::size_t level = 0;
    for (; level < levels_.size(); ++level) {
      const std::size_t word = value / 64;
      if (word >= levels_[level].size()) return kNone;
      if (const std::uint64_t rest = levels_[level][word] >> (value % 64); rest != 0) {
        value += static_cast<std::size_t>(std::countr_zero(rest));
        break;
      }
      value = word + 1;
    }
    if (level == levels_.size()) return kNone;
    while (level-- > 0) value = value * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][value]));
    return static_cast<std::uint32_t>(value);
  }

 private:
  std::array<std::vector<std::uint64_t>, 4> levels_;  // 64^4 values: more than any row has tokens
};

/// Rows with room, by their room; the latest first among equals.
class OpenRows {
 public:
  /// A gap below `least_gap` is lost: hardly any item is short enough to fill it.
  OpenRows(std::int32_t row_tokens, std::int32_t least_gap)
      : least_gap_(least_gap), with_room_(row_tokens + 1), head_(row_tokens + 1, kNone) {}

  /// Removes and returns the fullest row that takes `length` and is then full or keeps a useful gap; if there is none, the
  /// fullest that takes it. Sets `room`. Returns kNone if a new row is needed.
  std::uint32_t take(std::int32_t length, std::int32_t& room) {
    std::uint32_t found = with_room_.at_or_above(static_cast<std::size_t>(length));
    if (found == kNone) return kNone;
    if (const auto gap = static_cast<std::int32_t>(found) - length; gap > 0 && gap < least_gap_) {
      const std::uint32_t roomier = with_room_.at_or_above(static_cast<std::size_t>(length + least_gap_));
      if (roomier != kNone) found = roomier;
    }
    const std::uint32_t row = head_[found];
    head_[found] = next_[row];
    if (head_[found] == kNone) with_room_.erase(found);
    room = static_cast<std::int32_t>(found);
    return row;
  }
  std::uint32_t new_row() {
    next_.push_back(kNone);
    return static_cast<std::uint32_t>(next_.size() - 1);
  }
  void put(std::uint32_t row, std::int32_t room) {
    if (room == 0) return;
    if (head_[room] == kNone) with_room_.insert(static_cast<std::size_t>(room));
    next_[row] = head_[room];
    head_[room] = row;
  }
  std::size_t rows() const { return next_.size(); }

 private:
  std::int32_t least_gap_;
  SortedBits with_room_;
  std::vector<std::uint32_t> head_;  // [row_tokens + 1]
  std::vector<std::uint32_t> next_;  // [rows]
};

}  // namespace

RowPlan::RowPlan(std::span<const std::int32_t> lengths, std::int32_t row_tokens, std::uint64_t seed, bool shuffle)
    : row_tokens_(row_tokens), seed_(seed), shuffle_(shuffle) {
  if (row_tokens <= 0 || row_tokens >= (1 << 24))
    fail_config("cannot pack into rows of {} tokens: set cutoff_len between 1 and {}", row_tokens, (1 << 24) - 1);
  if (lengths.size() >= kNone) fail_config("cannot pack {} items into rows: at most {} are supported", lengths.size(), kNone - 1);
  group_by_length(lengths);
  place(placement_order());
}

/// Stable counting sort.
void RowPlan::group_by_length(std::span<const std::int32_t> lengths) {
  class_begin_.assign(static_cast<std::size_t>(row_tokens_) + 2, 0);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int32_t length = lengths[i];
    if (length < 1 || length > row_tokens_)
      fail_config(
          "item {} has {} tokens, which does not fit a row of {}: raise cutoff_len to the longest item, or "
          "repack with a lower one",
          i, length, row_tokens_);
    ++class_begin_[static_cast<std::size_t>(length) + 1];
    total_tokens_ += length;
  }
  for (std::size_t i = 1; i < class_begin_.size(); ++i) class_begin_[i] += class_begin_[i - 1];
  std::vector<std::uint32_t> next(class_begin_.begin(), class_begin_.end() - 1);
  by_length_.resize(lengths.size());
  for (std::size_t i = 0; i < lengths.size(); ++i)
    by_length_[next[static_cast<std::size_t>(lengths[i])]++] = static_cast<std::uint32_t>(i);
}

/// Returns indices into by_length_, in the order in which the items look for a row. Long items come first, because they find no
/// room among full rows; the order of the others only decides how rows are mixed.
std::vector<std::uint32_t> RowPlan::placement_order() const {
  const auto count = static_cast<std::uint32_t>(by_length_.size());
  std::vector<std::uint32_t> order;
  order.reserve(count);
  if (!shuffle_) {
    order.resize(count);
    for (std::uint32_t index = 0; index < count; ++index) order[by_length_[index]] = index;
    return order;
  }
  const std::uint32_t first_long = class_begin_[static_cast<std::size_t>(row_tokens_ / kLongShare) + 1];
  for (std::uint32_t index = count; index-- > first_long;) order.push_back(index);
  const Order shuffled(first_long, seed_, 0, kPatternStream);
  for (std::uint32_t i = 0; i < first_long; ++i) order.push_back(static_cast<std::uint32_t>(shuffled(i)));
  return order;
}

std::int32_t RowPlan::length_at(std::uint32_t index) const {
  return static_cast<std::int32_t>(std::upper_bound(class_begin_.begin(), class_begin_.end(), index) - class_begin_.begin()) - 1;
}

void RowPlan::place(std::span<const std::uint32_t> order) {
  std::vector<std::int32_t> length(by_length_.size());
  for (std::int32_t l = 1; l <= row_tokens_; ++l)
    std::fill(length.begin() + class_begin_[l], length.begin() + class_begin_[l + 1], l);
  const std::int32_t least_gap = shuffle_ && !length.empty() ? length[length.size() / 20] : 0;
  OpenRows open(row_tokens_, least_gap);
  std::vector<std::uint32_t> row_of(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::int32_t room = row_tokens_;
    std::uint32_t row = open.take(length[order[i]], room);
    if (row == kNone) row = open.new_row();
    open.put(row, room - length[order[i]]);
    row_of[i] = row;
  }
  row_offsets_.assign(open.rows() + 1, 0);
  for (const std::uint32_t row : row_of) ++row_offsets_[row + 1];
  for (std::size_t row = 0; row < open.rows(); ++row) row_offsets_[row + 1] += row_offsets_[row];
  std::vector<std::int64_t> next(row_offsets_.begin(), row_offsets_.end() - 1);
  row_indices_.resize(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) row_indices_[static_cast<std::size_t>(next[row_of[i]]++)] = order[i];
}

double RowPlan::efficiency() const {
  return rows() == 0 ? 1.0 : static_cast<double>(total_tokens_) / (static_cast<double>(rows()) * row_tokens_);
}

std::int64_t RowPlan::max_items_per_row() const {
  std::int64_t most = 0;
  for (std::size_t row = 1; row < row_offsets_.size(); ++row) most = std::max(most, row_offsets_[row] - row_offsets_[row - 1]);
  return most;
}

void RowPlan::append_row(std::uint64_t epoch, std::int64_t position, std::vector<std::int64_t>& items) const {
  QFT_ASSERT(position >= 0 && position < rows(), "row {} of {}", position, rows());
  const std::int64_t row = shuffle_ ? Order(rows(), seed_, epoch, kRowStream)(position) : position;
  for (std::int64_t i = row_offsets_[row]; i < row_offsets_[row + 1]; ++i) {
    const std::uint32_t index = row_indices_[static_cast<std::size_t>(i)];
    if (!shuffle_) {
      items.push_back(by_length_[index]);
      continue;
    }
    const std::int32_t length = length_at(index);
    const std::uint32_t begin = class_begin_[length];
    const Order same_length(class_begin_[length + 1] - begin, seed_, epoch, kClassStream + static_cast<std::uint64_t>(length));
    items.push_back(by_length_[begin + static_cast<std::size_t>(same_length(index - begin))]);
  }
}

}  // namespace qft::loader
