// Reads untrusted JSON from files and other programs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace qft {

/// Parsers reject deeper nesting, because to walk or print a document takes stack for every level.
inline constexpr int kMaxJsonDepth = 64;

/// A syntax error in JSON text, described so that a person can fix it.
struct JsonFault {
  std::size_t at = 0;                   // byte, from 0; the text's size for an error at its end
  std::ptrdiff_t line = 1, column = 1;  // of the character at `at`, both from 1
  std::string what;                     // "a comma before '}': remove it"
};

/// Describes the error that stopped a parser at byte `at` (from 0; text.size() for the end). `reason` is the what() of
/// nlohmann's exception.
JsonFault find_json_fault(std::string_view text, std::size_t at, std::string_view reason);

/// Returns the text with U+FFFD in place of each byte that is not valid UTF-8, so that any JSON can hold it.
std::string replace_invalid_utf8(std::string_view text);

/// Returns a JSON number, or a string for NaN and infinities, which JSON does not have.
nlohmann::ordered_json json_number(double value);

/// Parses the document. Throws Error that starts with `where` if the text is not JSON or is nested deeper than kMaxJsonDepth.
/// `Json` is nlohmann::json or nlohmann::ordered_json.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& where);

/// Throws Error "WHERE:LINE: ..." if an object has a key twice; parse_json() would take the last. `text` must be valid JSON.
void require_single_keys(std::string_view text, const std::string& where);

}  // namespace qft
