#include "clusters.h"

#include <algorithm>

#include <utf8proc.h>

namespace qft::console {
namespace {

constexpr int kTabColumns = 4;

/// The code point at `at`, and where the next one begins. A byte that is none stands for itself.
std::pair<utf8proc_int32_t, std::size_t> point_at(std::string_view text, std::size_t at) {
  utf8proc_int32_t point = -1;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                  static_cast<utf8proc_ssize_t>(text.size() - at), &point);
  if (n <= 0) return {0xFFFD, at + 1};
  return {point, at + static_cast<std::size_t>(n)};
}

int columns_of(utf8proc_int32_t point) {
  return point == '\t' ? kTabColumns : utf8proc_charwidth(point);
}

}  // namespace

Cluster cluster_at(std::string_view text, std::size_t begin) {
  auto [point, at] = point_at(text, begin);
  Cluster cluster{at, columns_of(point)};
  utf8proc_int32_t state = 0;
  while (cluster.end < text.size()) {
    const auto [next, end] = point_at(text, cluster.end);
    if (utf8proc_grapheme_break_stateful(point, next, &state)) break;
    cluster = {end, std::max(cluster.columns, columns_of(next))};
    point = next;
  }
  return cluster;
}

std::size_t cluster_before(std::string_view text, std::size_t end) {
  // Clusters are found forwards alone, from where a line begins.
  const auto line = end < 2 ? std::string_view::npos : text.rfind('\n', end - 2);
  std::size_t begin = line == std::string_view::npos ? 0 : line + 1;
  for (std::size_t next = begin; (next = cluster_at(text, begin).end) < end;) begin = next;
  return begin;
}

}  // namespace qft::console
