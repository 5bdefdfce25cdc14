#include "table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "page.h"
#include <fmt/format.h>

namespace qft::plan {

Unit Unit::of(double largest) {
  if (largest >= 10e9) return {1e9, "GB", 2};
  if (largest >= 1e9) return {1e9, "GB", 3};
  return {1e6, "MB", 2};
}

std::string Unit::text(double bytes) const {
  if (bytes == 0.0) return "-";
  const std::string number = fmt::format("{:.{}f}", bytes / size, digits);
  return number.find_first_of("123456789") == number.npos ? fmt::format("<{:.{}f}", std::pow(10.0, -digits), digits) : number;
}

std::string seconds_text(double s) {
  return s >= 9.995 ? fmt::format("{:.1f}", s) : s >= 0.09995 ? fmt::format("{:.2f}", s) : fmt::format("{:.4f}", s);
}

std::string lay_out(const std::vector<std::vector<std::string>>& columns, std::size_t repeated) {
  const auto width = [&](std::size_t column) { return std::ranges::max(columns[column], {}, &std::string::size).size(); };
  std::string text;
  for (std::size_t next = repeated; next < columns.size();) {
    std::vector<std::size_t> block(repeated);
    std::iota(block.begin(), block.end(), std::size_t{0});
    std::size_t wide = 0;
    for (const std::size_t column : block) wide += width(column) + (column > 0 ? 2 : 0);
    for (; next < columns.size() && (block.size() == repeated || wide + 2 + width(next) <= kColumns); ++next) {
      wide += 2 + width(next);
      block.push_back(next);
    }
    if (!text.empty()) text += '\n';
    for (std::size_t line = 0; line < columns[0].size(); ++line) {
      for (const std::size_t column : block)
        text += column == 0 ? fmt::format("{:<{}}", columns[0][line], width(0))
                            : fmt::format("  {:>{}}", columns[column][line], width(column));
      text += '\n';
    }
  }
  return text;
}

}  // namespace qft::plan
