// Lays out tables of text, with numbers in one unit. Private to plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qft::plan {

/// The unit of a table, chosen for its largest number of bytes.
struct Unit {
  double size;
  const char* name;
  int digits;

  static Unit of(double largest);
  /// Returns "-" for 0.
  std::string text(double bytes) const;
  std::string text(std::int64_t bytes) const { return text(static_cast<double>(bytes)); }
};

/// Formats seconds so that a larger number never looks smaller.
std::string seconds_text(double s);

/// Formats columns, each a heading and its cells, as wide as their widest cell; the first is aligned left. Columns beyond the
/// page width continue in another block, which repeats the first `repeated` columns.
std::string lay_out(const std::vector<std::vector<std::string>>& columns, std::size_t repeated);

}  // namespace qft::plan
