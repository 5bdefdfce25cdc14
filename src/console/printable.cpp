#include "qft/console/printable.h"

#include <algorithm>

#include <utf8proc.h>

namespace qft::console {
namespace {

constexpr int kTabColumns = 4;

constexpr utf8proc_int32_t kReplacement = 0xFFFD;  // what terminals show for a byte that is not UTF-8

Point shown_at(std::string_view text, std::size_t at) {
  const Point point = point_at(text, at);
  return {point.value == kNoPoint ? kReplacement : point.value, point.end};
}

int columns_of(utf8proc_int32_t point) {
  return point == '\t' ? kTabColumns : utf8proc_charwidth(point);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Point point = point_at(text, at);
    // Terminals also obey control characters beyond ASCII. A byte that is not UTF-8 has a value below all of them.
    const bool control = point.value < 0x20 || (point.value >= 0x7f && point.value < 0xa0);
    if (!control || point.value == '\t' || point.value == '\n') out += text.substr(at, point.end - at);
    at = point.end;
  }
  return out;
}

Point point_at(std::string_view text, std::size_t at) {
  utf8proc_int32_t value = kNoPoint;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                  static_cast<utf8proc_ssize_t>(text.size() - at), &value);
  if (n <= 0) return {kNoPoint, at + 1};
  return {value, at + static_cast<std::size_t>(n)};
}

Cluster cluster_at(std::string_view text, std::size_t begin) {
  auto [point, at] = shown_at(text, begin);
  Cluster cluster{at, columns_of(point)};
  utf8proc_int32_t state = 0;
  while (cluster.end < text.size()) {
    const auto [next, end] = shown_at(text, cluster.end);
    if (utf8proc_grapheme_break_stateful(point, next, &state)) break;
    cluster = {end, std::max(cluster.columns, columns_of(next))};
    point = next;
  }
  return cluster;
}

std::size_t cluster_before(std::string_view text, std::size_t end) {
  // Clusters can only be found forwards, so start at the beginning of the line.
  const auto line = end < 2 ? std::string_view::npos : text.rfind('\n', end - 2);
  std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
  for (std::size_t next = begin; (next = cluster_at(text, begin).end) < end;) begin = next;
  return begin;
}

}  // namespace qft::console
