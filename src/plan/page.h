// Wraps text to kColumns columns. Private to plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace qft::plan {

inline constexpr std::size_t kColumns = 120;

/// Breaks longer lines at spaces and indents their rest by four more columns.
inline std::string wrapped(const std::string& text) {
  std::string page;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    const std::size_t in = line.find_first_not_of(' ') + 4;
    for (std::size_t space; line.size() > kColumns && (space = line.rfind(' ', kColumns)) != line.npos && space > in;) {
      page += line.substr(0, space) + "\n";
      line = std::string(in, ' ') + line.substr(space + 1);
    }
    page += line + "\n";
    begin = end + 1;
  }
  return page;
}

}  // namespace qft::plan
