// Parts of a flat buffer.
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

/// Adds a range behind the others; one that begins where the last ends is a part of it.
void append(Ranges& ranges, const Range& range);
std::int64_t size_of(const Ranges& ranges);
/// The elements of either.
Ranges united(const Ranges& a, const Ranges& b);
/// The elements of `all` that `others` have not.
Ranges difference(const Ranges& all, const Ranges& others);
/// Those that lie in `window`.
Ranges within(const Ranges& ranges, const Range& window);

}  // namespace qft::parallel
