#include "order.h"

#include <algorithm>
#include <utility>

namespace qft::sim {

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void advance(Clock& clock, int stream, std::uint64_t at) {
  const auto i = static_cast<std::size_t>(stream);
  if (clock.size() <= i) clock.resize(i + 1, 0);
  clock[i] = std::max(clock[i], at);
}

bool covers(const Clock& clock, int stream, std::uint64_t at) {
  const auto i = static_cast<std::size_t>(stream);
  return at == 0 || (i < clock.size() && clock[i] >= at);
}

void Uses::split(Address at) {
  auto next = ranges_.upper_bound(at);
  if (next == ranges_.begin()) return;
  const auto range = std::prev(next);
  if (range->first == at || range->second.end <= at) return;
  Range upper = range->second;
  range->second.end = at;
  ranges_.emplace_hint(next, at, std::move(upper));
}

std::optional<Uses::Conflict> Uses::conflict(Address begin, Address end, bool write, const Clock& clock) const {
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < end; ++range) {
    const Range& r = range->second;
    if (r.end <= begin) continue;
    const Address at = std::max(begin, range->first);
    if (r.writer && !covers(clock, r.writer->stream, r.writer->at)) return Conflict{*r.writer, true, at};
    if (!write) continue;
    for (const Use& reader : r.readers)
      if (!covers(clock, reader.stream, reader.at)) return Conflict{reader, false, at};
  }
  return std::nullopt;
}

void Uses::forget(Address begin, Address end) {
  split(begin);
  split(end);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
}

void Uses::note(Address begin, Address end, bool write, const Use& use) {
  if (begin == end) return;
  if (!write) return read(begin, end, use);
  forget(begin, end);
  ranges_.emplace(begin, Range{end, use, {}});
}

void Uses::read(Address begin, Address end, const Use& use) {
  split(begin);
  split(end);
  auto range = ranges_.lower_bound(begin);
  for (Address at = begin; at < end;) {
    if (range == ranges_.end() || range->first > at) {  // no use so far
      const Address stop = range == ranges_.end() ? end : std::min(end, range->first);
      range = ranges_.emplace_hint(range, at, Range{stop, std::nullopt, {}});
    }
    auto& readers = range->second.readers;
    const auto same = std::find_if(readers.begin(), readers.end(), [&](const Use& r) { return r.stream == use.stream; });
    if (same == readers.end()) {
      readers.push_back(use);
    } else {
      *same = use;
    }
    at = range->second.end;
    ++range;
  }
}

}  // namespace qft::sim
