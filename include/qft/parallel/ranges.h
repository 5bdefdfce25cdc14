// Ranges of a flat buffer.
#pragma once

#include <cstdint>
#include <vector>

namespace qft::parallel {

/// Elements [begin, end).
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Ascending, with gaps between them.
using Ranges = std::vector<Range>;

/// Appends a range that lies behind the others; merges it with the last one if they touch.
void append(Ranges& ranges, const Range& range);
std::int64_t size_of(const Ranges& ranges);
/// Returns the elements that are in `a` or `b`.
Ranges united(const Ranges& a, const Ranges& b);
/// Returns the elements of `all` that are not in `others`.
Ranges difference(const Ranges& all, const Ranges& others);
/// Returns the elements that lie in `window`.
Ranges within(const Ranges& ranges, const Range& window);

}  // namespace qft::parallel
