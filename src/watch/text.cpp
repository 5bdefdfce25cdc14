#include "text.h"

#include <algorithm>

namespace qft::watch {
namespace {

/// Returns the bytes of the UTF-8 character that `text` begins with; 0 if it is invalid for a terminal.
std::size_t character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t n = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  return n;
}

}  // namespace

std::size_t columns_of(std::string_view text) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b')
      i = std::min(text.find('m', i), text.size());
    else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
      ++n;
  }
  return n;
}

std::string plain(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = character(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control =
        n == 1 ? first < 0x20 || first == 0x7f : n == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    out += n == 0 || control ? std::string_view("?") : text.substr(0, n);
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

std::string cut(const std::string& text, int width) {
  if (columns_of(text) <= static_cast<std::size_t>(width)) return text;
  std::size_t n = 0, i = 0;
  for (; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size() - 1);
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++n > static_cast<std::size_t>(width)) break;
  }
  return text.substr(0, i) + (text.find('\x1b') == text.npos ? "" : "\x1b[0m");
}

std::string padded(const std::string& text, int width) {
  const std::string shown = cut(text, width);
  return shown + std::string(static_cast<std::size_t>(width) - columns_of(shown), ' ');
}

}  // namespace qft::watch
