#include "qft/core/box.h"

#include <algorithm>

#include "qft/core/error.h"

namespace qft {
namespace {

std::int64_t end_of(const Box& box, std::size_t d) { return box.start[d] + box.extent[d]; }

/// Boxes whose inner dimensions agree are matrices: rows, which are apart, of elements that follow each other.
struct Rows {
  std::size_t split = 0;                      ///< the last dimension in which the boxes may differ
  std::vector<std::int64_t> first, count;     ///< of the common rows' coordinates, dimensions [0, split)
  std::uint64_t length = 1;                   ///< elements of a common row
};

/// Nothing in common: count of elements 0.
Rows common_rows(const Box& a, const Box& b) {
  Rows rows;
  const std::size_t dims = a.start.size();
  std::size_t split = dims;
  while (split > 0 && a.start[split - 1] == b.start[split - 1] && a.extent[split - 1] == b.extent[split - 1]) --split;
  rows.split = split > 0 ? split - 1 : 0;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t first = std::max(a.start[d], b.start[d]), n = std::min(end_of(a, d), end_of(b, d)) - first;
    if (n <= 0) return {0, {}, {}, 0};
    if (d < rows.split) {
      rows.first.push_back(first);
      rows.count.push_back(n);
    } else {
      rows.length *= static_cast<std::uint64_t>(n);
    }
  }
  return rows;
}

/// The place in the flattened box of the common row at `row` (relative to rows.first).
std::uint64_t place_of(const Box& box, const Rows& rows, const std::vector<std::int64_t>& row, const Box& other) {
  std::int64_t place = 0;
  for (std::size_t d = 0; d < box.start.size(); ++d) {
    const std::int64_t at = d < rows.split ? rows.first[d] + row[d] : std::max(box.start[d], other.start[d]);
    place = place * box.extent[d] + (at - box.start[d]);
  }
  return static_cast<std::uint64_t>(place);
}

/// The next row in row-major order; false after the last.
bool advance(const Rows& rows, std::vector<std::int64_t>& row) {
  for (std::size_t d = rows.split; d-- > 0;) {
    if (++row[d] < rows.count[d]) return true;
    row[d] = 0;
  }
  return false;
}

}  // namespace

Box Box::whole(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

std::uint64_t Box::elements() const {
  std::uint64_t n = 1;
  for (const std::int64_t d : extent)
    require(d >= 0 && !__builtin_mul_overflow(n, static_cast<std::uint64_t>(d), &n), "{} is no part of a tensor", describe());
  return n;
}

bool Box::inside(const Shape& shape) const {
  if (start.size() != shape.size() || extent.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (start[d] < 0 || extent[d] < 0 || start[d] > shape[d] || extent[d] > shape[d] - start[d]) return false;
  return true;
}

std::string Box::describe() const {
  std::string text;
  for (std::size_t d = 0; d < std::min(start.size(), extent.size()); ++d)
    text += fmt::format("{}{}:{}", d == 0 ? "" : ", ", start[d], start[d] + extent[d]);
  return "[" + text + "]";
}

bool disjoint(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d)
    if (a.extent[d] == 0 || b.extent[d] == 0 || end_of(a, d) <= b.start[d] || end_of(b, d) <= a.start[d]) return true;
  return false;
}

void for_each_common_run(const BoxRange& a, const BoxRange& b, const std::function<void(const CommonRun&)>& body) {
  const Rows rows = common_rows(a.box, b.box);
  if (rows.length == 0) return;
  std::vector<std::int64_t> row(rows.split, 0);
  do {
    const std::uint64_t in_a = place_of(a.box, rows, row, b.box), in_b = place_of(b.box, rows, row, a.box);
    if (in_a >= a.end) return;
    // So many elements of the row come before either range begins.
    std::uint64_t skip = 0;
    if (a.begin > in_a) skip = a.begin - in_a;
    if (b.begin > in_b) skip = std::max(skip, b.begin - in_b);
    const std::uint64_t stop = std::min({rows.length, a.end - in_a, b.end > in_b ? b.end - in_b : 0});
    if (skip < stop) body({in_a + skip - a.begin, in_b + skip - b.begin, stop - skip});
  } while (advance(rows, row));
}

}  // namespace qft
