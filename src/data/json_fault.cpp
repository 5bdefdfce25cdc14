#include "json_fault.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace qft::data {
namespace {

// Words of Python and JavaScript, and JSON's own.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"None", "null"}, {"True", "true"}, {"False", "false"}, {"undefined", "null"}};

struct Fault {
  std::size_t at;
  std::string what;
};

std::size_t last_visible_before(std::string_view text, std::size_t at) {
  const std::size_t found = text.substr(0, at).find_last_not_of(" \t\r\n");
  return found == text.npos ? 0 : found;
}

// The \uD800 to \uDFFF that ends before or at `at`.
Fault lone_surrogate(std::string_view text, std::size_t at) {
  for (std::size_t p = std::min(at, text.size()); p-- > 0;) {
    const std::string_view code = text.substr(p, 6);
    if (code.size() < 6 || !code.starts_with("\\u") || (code[2] | 0x20) != 'd' || code[3] < '8') continue;
    return {p, fmt::format("{} is one half of a surrogate pair and no character: write both halves (as \\ud83d\\ude00) "
                           "or the character itself",
                           code)};
  }
  return {at, "one half of a surrogate pair is no character: write both halves or the character itself"};
}

Fault fault_of(std::string_view text, std::size_t at, std::string_view reason) {
  const auto says = [&](std::string_view words) { return reason.find(words) != reason.npos; };
  if (says("surrogate")) return lone_surrogate(text, at);
  if (at >= text.size()) return {text.size(), "it ends too early: a bracket, a brace or a quote is missing"};
  const char c = text[at];
  const auto byte = static_cast<unsigned char>(c);
  if (says("ill-formed UTF-8"))
    return {at, fmt::format("0x{:02X} is not UTF-8: convert the file (iconv -t UTF-8) or repair it", byte)};
  if (says("control character"))
    return {at, c == '\n' ? "a line break inside a text: write \\n" : fmt::format("the byte 0x{:02X} inside a text: write \\u{:04x}", byte, byte)};
  if (says("expected end of input"))
    return {at, c == ',' ? "a comma after the record: remove it, or put all records into [ ]" : "more text after the end"};
  if (const std::size_t comma = last_visible_before(text, at); (c == '}' || c == ']') && text[comma] == ',')
    return {comma, fmt::format("a comma before '{}': remove it", c)};
  if (c == '\'') return {at, "a single quote: JSON has its texts in double quotes"};
  if (c == '/' || c == '#') return {at, "JSON has no comments: remove it"};
  for (const auto& [word, own] : kWords)
    if (text.substr(at).starts_with(word)) return {at, fmt::format("{} is no JSON: write {}", word, own)};
  const std::size_t words = reason.rfind(" - ");
  return {at, std::string(words == reason.npos ? reason : reason.substr(words + 3))};
}

}  // namespace

std::string describe_json_fault(std::string_view text, std::size_t at, std::string_view reason) {
  const Fault fault = fault_of(text, at, reason);
  return fmt::format("at byte {}: {}", fault.at + 1, fault.what);
}

}  // namespace qft::data
