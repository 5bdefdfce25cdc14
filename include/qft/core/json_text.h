// Writes JSON strings into a record that is built piece by piece. Header-only, because plug-ins link none of our libraries.
#pragma once

#include <string>
#include <string_view>

namespace qft {

/// Appends `text` in quotes. Invalid UTF-8 stays as is: the reader of the record reports it.
inline void append_json_text(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace qft
