// Removes characters that control a terminal; grapheme clusters (characters as people see them) and their width in terminal
// columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::console {

/// Returns the text without control characters other than tabs and \n, and without bytes that are not UTF-8.
std::string printable(std::string_view text);

struct Cluster {
  std::size_t end = 0;  ///< end of its bytes
  int columns = 0;
};

/// A code point, and the start of the next one. A byte that is not UTF-8 is kNoPoint.
struct Point {
  std::int32_t value = 0;
  std::size_t end = 0;
};
inline constexpr std::int32_t kNoPoint = -1;
Point point_at(std::string_view text, std::size_t at);

/// Returns the cluster of a UTF-8 text that begins at byte `begin` (less than the text's size).
Cluster cluster_at(std::string_view text, std::size_t begin);
/// Returns the start of the cluster before byte `end`, which must be above 0.
std::size_t cluster_before(std::string_view text, std::size_t end);

}  // namespace qft::console
