// JSON from files and other programs, which nobody has checked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft {

/// Deeper nesting is refused: walking and printing a document takes stack for every level.
inline constexpr int kMaxJsonDepth = 64;

/// What is wrong with a text that is no JSON, said so that a person can mend it.
struct JsonFault {
  std::size_t at = 0;                   // byte, from 0; the text's size: at its end
  std::ptrdiff_t line = 1, column = 1;  // of its character, from 1
  std::string what;                     // "a comma before '}': remove it"
};

/// A parser gave up at byte `at` (from 0; text.size(): at the end) for `reason`, the what() of nlohmann's exception.
JsonFault find_json_fault(std::string_view text, std::size_t at, std::string_view reason);

/// The text with U+FFFD for each byte that is not UTF-8: what any JSON can hold.
std::string as_utf8(std::string_view text);

/// A number, or its text where JSON has none for it: NaN and infinities.
nlohmann::ordered_json json_number(double value);

/// The document; throws Error starting with `where` for text that is not JSON or nested too deeply. `Json` is
/// nlohmann::json or nlohmann::ordered_json.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where);

/// Throws Error "WHERE:LINE: ..." where an object of `text`, which is JSON, has a key twice: parse_json() takes the last one.
void require_single_keys(std::string_view text, const std::string& where);

}  // namespace qft
