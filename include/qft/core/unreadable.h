// Marks table values that a record cannot hold: an error if the value is read, otherwise ignored. Header-only, because plug-ins
// link none of our libraries.
#pragma once

#include <string>
#include <string_view>

namespace qft {

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
