// What stands in a record for a value of a table that no record can hold: an error where it is read, nothing where it is not. A
// header alone: plug-ins link none of our libraries.
#pragma once

#include <string>
#include <string_view>

namespace qft {

/// The text begins with a character that Unicode gives to no text (U+FDD0).
inline constexpr std::string_view kUnreadable = "\xEF\xB7\x90qft: ";

/// `what` says which column holds what: "column 'x' holds bytes that are not UTF-8 (type binary)".
inline std::string unreadable_value(std::string_view what) {
  return std::string(kUnreadable) + std::string(what);
}
/// What such a text says; "" for any other text.
inline std::string_view unreadable_reason(std::string_view text) {
  return text.starts_with(kUnreadable) ? text.substr(kUnreadable.size()) : std::string_view();
}

}  // namespace qft
