#include "qft/console/printable.h"

#include <cstddef>

#include <utf8proc.h>

namespace qft::console {

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    utf8proc_int32_t point = -1;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                    static_cast<utf8proc_ssize_t>(text.size() - at), &point);
    const std::size_t length = n > 0 ? static_cast<std::size_t>(n) : 1;
    const bool control = point < 0x20 || (point >= 0x7f && point < 0xa0);  // terminals obey those beyond ASCII too
    if (!control || point == '\t' || point == '\n') out += text.substr(at, length);
    at += length;
  }
  return out;
}

}  // namespace qft::console
