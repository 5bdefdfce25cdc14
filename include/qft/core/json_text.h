// Writes JSON strings into a record that is built piece by piece, and marks table values that a record cannot hold: an error if
// the value is read, otherwise ignored. Header-only, because plug-ins link none of our libraries.
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

/// The marker begins with U+FDD0, a character that Unicode reserves: no text contains it.
inline constexpr std::string_view kUnreadable = "\xEF\xB7\x90qft: ";

/// Returns a marked text. `what` names the column and its content: "column 'x' holds bytes that are not UTF-8 (type binary)".
inline std::string unreadable_value(std::string_view what) {
  return std::string(kUnreadable) + std::string(what);
}
/// Returns the reason in a marked text; "" for any other text.
inline std::string_view unreadable_reason(std::string_view text) {
  return text.starts_with(kUnreadable) ? text.substr(kUnreadable.size()) : std::string_view();
}

}  // namespace qft
