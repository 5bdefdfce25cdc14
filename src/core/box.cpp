#include "qft/core/box.h"

#include "qft/core/error.h"

#include <algorithm>

#include <fmt/ranges.h>

namespace qft {
namespace {

std::int64_t end_of(const Box& box, std::size_t d) {
  return box.start[d] + box.extent[d];
}

/// The intersection of two boxes as rows: a row's elements are consecutive in both boxes, successive rows are not.
class CommonRows {
 public:
  CommonRows(const Box& a, const Box& b) : a_(a), b_(b) {
    // The trailing dimensions in which the boxes agree, plus the next one, make up a row.
    std::size_t differ = a.start.size();
    while (differ > 0 && a.start[differ - 1] == b.start[differ - 1] && a.extent[differ - 1] == b.extent[differ - 1]) --differ;
    outer_ = differ > 0 ? differ - 1 : 0;
    for (std::size_t d = 0; d < a.start.size(); ++d) {
      const std::int64_t first = std::max(a.start[d], b.start[d]), n = std::min(end_of(a, d), end_of(b, d)) - first;
      first_.push_back(first);
      extent_.push_back(n > 0 ? static_cast<std::uint64_t>(n) : 0);
      (d < outer_ ? count_ : length_) *= extent_.back();
    }
  }

  /// Number of rows, and elements per row; 0 if the boxes do not intersect.
  std::uint64_t count() const { return length_ == 0 ? 0 : count_; }
  std::uint64_t length() const { return length_; }
  /// Offset of a row's first element in each flattened box. Both increase with the row.
  std::uint64_t in_a(std::uint64_t row) const { return place(a_, row); }
  std::uint64_t in_b(std::uint64_t row) const { return place(b_, row); }

 private:
  std::uint64_t place(const Box& box, std::uint64_t row) const {
    std::uint64_t place = 0, stride = 1;
    for (std::size_t d = box.start.size(); d-- > 0;) {
      auto at = static_cast<std::uint64_t>(first_[d] - box.start[d]);
      if (d < outer_) {
        at += row % extent_[d];
        row /= extent_[d];
      }
      place += at * stride;
      stride *= static_cast<std::uint64_t>(box.extent[d]);
    }
    return place;
  }

  const Box &a_, &b_;
  std::size_t outer_ = 0;  ///< leading dimensions that number the rows
  std::vector<std::int64_t> first_;
  std::vector<std::uint64_t> extent_;
  std::uint64_t count_ = 1, length_ = 1;
};

/// Returns the first row that reaches into both ranges, given their begins.
std::uint64_t first_row(const CommonRows& rows, std::uint64_t begin_a, std::uint64_t begin_b) {
  std::uint64_t low = 0, high = rows.count();
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const bool reaches = rows.in_a(middle) + rows.length() > begin_a && rows.in_b(middle) + rows.length() > begin_b;
    (reaches ? high : low) = reaches ? middle : middle + 1;
  }
  return low;
}

}  // namespace

Box Box::whole(const Shape& shape) {
  return {Shape(shape.size(), 0), shape};
}

std::uint64_t Box::elements() const {
  std::uint64_t n = 1;
  for (const std::int64_t d : extent)
    if (d < 0 || __builtin_mul_overflow(n, static_cast<std::uint64_t>(d), &n))
      fail("[{}] is an impossible shape", fmt::join(extent, ", "));
  return n;
}

bool Box::inside(const Shape& shape) const {
  if (start.size() != shape.size() || extent.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (start[d] < 0 || extent[d] < 0 || start[d] > shape[d] || extent[d] > shape[d] - start[d]) return false;
  return true;
}

std::string Box::describe() const {
  return fmt::format("[{}] from [{}] on", fmt::join(extent, ", "), fmt::join(start, ", "));
}

bool disjoint(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d)
    if (a.extent[d] == 0 || b.extent[d] == 0 || end_of(a, d) <= b.start[d] || end_of(b, d) <= a.start[d]) return true;
  return false;
}

void for_each_common_run(const BoxRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body) {
  const CommonRows rows(a.box, b.box);
  for (std::uint64_t row = first_row(rows, a.begin, b.begin); row < rows.count(); ++row) {
    const std::uint64_t in_a = rows.in_a(row), in_b = rows.in_b(row);
    if (in_a >= a.end || in_b >= b.end) return;
    // Elements of the row before the later of the two begins.
    const std::uint64_t skip = std::max(a.begin > in_a ? a.begin - in_a : 0, b.begin > in_b ? b.begin - in_b : 0);
    const std::uint64_t stop = std::min({rows.length(), a.end - in_a, b.end - in_b});
    if (skip < stop) body({in_a + skip - a.begin, in_b + skip - b.begin, stop - skip});
  }
}

std::uint64_t elements(std::span<const Box> boxes) {
  std::uint64_t n = 0;
  for (const Box& box : boxes) n += box.elements();
  return n;
}

std::vector<BoxPart> parts_of(const BoxesRange& range) {
  std::vector<BoxPart> parts;
  std::uint64_t before = 0;  // elements of the boxes before this one
  for (const Box& box : range.boxes) {
    const std::uint64_t n = box.elements(), begin = std::max(range.begin, before), end = std::min(range.end, before + n);
    if (begin < end) parts.push_back({{box, begin - before, end - before}, begin - range.begin});
    before += n;
  }
  return parts;
}

void for_each_common_run(const BoxesRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body) {
  for (const BoxPart& part : parts_of(a))
    for_each_common_run(part.range, b, [&](const CommonRun& run) { body({part.begin + run.a, run.b, run.count}); });
}

std::uint64_t index_in_whole(std::span<const Box> boxes, const Shape& shape, std::uint64_t i) {
  for (const Box& box : boxes) {
    const std::uint64_t n = box.elements();
    if (i >= n) {
      i -= n;
      continue;
    }
    std::uint64_t index = 0, stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const auto extent = static_cast<std::uint64_t>(box.extent[d]);
      index += (static_cast<std::uint64_t>(box.start[d]) + i % extent) * stride;
      i /= extent;
      stride *= static_cast<std::uint64_t>(shape[d]);
    }
    return index;
  }
  fail("element {} lies beyond {} elements of the boxes", i + elements(boxes), elements(boxes));
}

}  // namespace qft
