#include "qft/parallel/ranges.h"

#include <algorithm>
#include <iterator>

namespace qft::parallel {

void append(Ranges& ranges, const Range& range) {
  if (range.size() <= 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

std::int64_t size_of(const Ranges& ranges) {
  std::int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

Ranges united(const Ranges& a, const Ranges& b) {
  Ranges all;
  std::ranges::merge(a, b, std::back_inserter(all), {}, &Range::begin, &Range::begin);
  Ranges result;
  for (const Range& range : all) {
    if (!result.empty() && range.begin <= result.back().end)
      result.back().end = std::max(result.back().end, range.end);
    else
      append(result, range);
  }
  return result;
}

Ranges difference(const Ranges& all, const Ranges& others) {
  Ranges result;
  auto other = others.begin();
  for (const Range& range : all) {
    std::int64_t begin = range.begin;
    while (other != others.end() && other->end <= begin) ++other;
    for (auto next = other; next != others.end() && next->begin < range.end; ++next) {
      append(result, {begin, next->begin});
      begin = std::max(begin, next->end);
    }
    append(result, {begin, range.end});
  }
  return result;
}

Ranges within(const Ranges& ranges, const Range& window) {
  Ranges result;
  for (const Range& range : ranges) append(result, {std::max(range.begin, window.begin), std::min(range.end, window.end)});
  return result;
}

}  // namespace qft::parallel
