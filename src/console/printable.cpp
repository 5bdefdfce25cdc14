#include "qft/console/printable.h"

#include <cstddef>

#include "clusters.h"

namespace qft::console {

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

}  // namespace qft::console
