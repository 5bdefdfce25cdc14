// Splits the texts in which tables list several words. Private to dialects.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace qft::dialects {

/// Returns the non-empty parts of `text` between marks, as views into it.
inline std::vector<std::string_view> split(std::string_view text, std::string_view mark = " ") {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(mark, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + mark.size();
  }
  return parts;
}

}  // namespace qft::dialects
