// Reads untrusted JSON from files and other programs. Finds names that appear twice in one object: JSON does not say which of
// them counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// Returns the two positions, in order, of the first name that appears a second time in `list`; `name_of` returns an element's
/// name.
template <class List, class Name>
std::optional<std::pair<std::size_t, std::size_t>> find_repeated(const List& list, const Name& name_of) {
  constexpr std::size_t kFew = 16;  // up to this size comparing all pairs costs less than sorting
  const std::size_t n = list.size();
  if (n <= kFew) {
    for (std::size_t b = 1; b < n; ++b)
      for (std::size_t a = 0; a < b; ++a)
        if (name_of(list[a]) == name_of(list[b])) return std::pair{a, b};
    return std::nullopt;
  }
  std::vector<std::size_t> places(n);
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](auto a, auto b) { return name_of(list[a]) < name_of(list[b]); });
  std::optional<std::pair<std::size_t, std::size_t>> first;
  for (std::size_t i = 1; i < n; ++i)
    if (name_of(list[places[i - 1]]) == name_of(list[places[i]]) && (!first || places[i] < first->second))
      first = {places[i - 1], places[i]};
  return first;
}

/// Returns at most `most` bytes of a value for a message, cut between characters.
std::string shortened(std::string_view text, std::size_t most = 40);

/// Returns "the key 'city' appears twice in 'arguments', as "Oslo" and as "Rome": ...". `object` is the object's path, "" for the
/// outermost.
std::string describe_repeated(std::string_view object, std::string_view key, std::string_view first, std::string_view second);

}  // namespace qft
