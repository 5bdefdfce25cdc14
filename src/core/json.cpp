#include "qft/core/json.h"

#include "qft/core/error.h"

#include <cctype>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>

namespace qft {
namespace {

/// Iterates over the bytes of a text and counts in `*line` the lines before the next byte.
struct LineCounter {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  std::ptrdiff_t* line;

  reference operator*() const { return *at; }
  LineCounter& operator++() {
    *line += *at == '\n';
    ++at;
    return *this;
  }
  LineCounter operator++(int) { return std::exchange(*this, {at + 1, line}); }
  friend bool operator==(const LineCounter& a, const LineCounter& b) { return a.at == b.at; }
};

/// Throws Error at the first key that its object already has.
class SingleKeys : public nlohmann::json_sax<nlohmann::json> {
 public:
  SingleKeys(const std::string& where, const std::ptrdiff_t& line) : where_(where), line_(line) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    const auto [known, fresh] = open_.back().emplace(name, line_);
    if (!fresh)
      fail("{}:{}: the key '{}' appears twice in one object, first on line {}: remove one", where_, line_, name, known->second);
    return true;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override { return false; }

 private:
  const std::string& where_;
  const std::ptrdiff_t& line_;
  std::vector<std::map<std::string, std::ptrdiff_t>> open_;  // keys of each open object, with their lines
};

// Words of Python and JavaScript, and the JSON words for them.
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"None", "null"}, {"True", "true"}, {"False", "false"}, {"undefined", "null"}};

// Phrases of nlohmann's parser that tell its position, and the text expected there.
constexpr std::pair<std::string_view, std::string_view> kExpected[] = {{"parsing object key ", "a key in double quotes"},
                                                                       {"parsing object separator ", "':'"},
                                                                       {"parsing object ", "',' or '}'"},
                                                                       {"parsing array ", "',' or ']'"},
                                                                       {"parsing value ", "a value"}};

constexpr std::size_t kShown = 40;  // bytes of the text in a message

struct Fault {
  std::size_t at;
  std::string what;
};

std::size_t last_visible_before(std::string_view text, std::size_t at) {
  const std::size_t found = text.substr(0, at).find_last_not_of(" \t\r\n");
  return found == text.npos ? 0 : found;
}

bool is_part_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || (static_cast<unsigned char>(c) & 0x80) != 0 ||
         std::string_view("_+-.").find(c) != std::string_view::npos;
}

// Returns the begin of the string or word that the parser had read up to `at`.
std::size_t begin_of_token(std::string_view text, std::size_t at) {
  if (text[at] == '"') {
    for (std::size_t quote = at; quote > 0 && (quote = text.rfind('"', quote - 1)) != text.npos;) {
      std::size_t slash = quote;
      while (slash > 0 && text[slash - 1] == '\\') --slash;
      if ((quote - slash) % 2 == 0) return quote;
    }
    return at;
  }
  while (at > 0 && is_part_of_word(text[at]) && is_part_of_word(text[at - 1])) --at;
  return at;
}

// Returns the string, word or sign that begins at `at`, shortened.
std::string token_at(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  if (text[at] == '"')
    end = std::min(text.find('"', end), text.size() - 1) + 1;
  else if (is_part_of_word(text[at]))
    while (end < text.size() && is_part_of_word(text[end])) ++end;
  if (end - at <= kShown) return std::string(text.substr(at, end - at));
  end = at + kShown;
  while (end > at + 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(at, end - at)) + " ...";
}

// Finds the \uD800 to \uDFFF that ends before or at `at`.
Fault lone_surrogate(std::string_view text, std::size_t at) {
  for (std::size_t p = std::min(at, text.size()); p-- > 0;) {
    const std::string_view code = text.substr(p, 6);
    if (code.size() < 6 || !code.starts_with("\\u") || (code[2] | 0x20) != 'd' || code[3] < '8') continue;
    return {p, fmt::format("{} is one half of a surrogate pair, not a character: write both halves (as \\ud83d\\ude00) "
                           "or the character itself",
                           code)};
  }
  return {at, "one half of a surrogate pair is not a character: write both halves or the character itself"};
}

// Describes an error inside a string or a comment, or after the end.
Fault broken_bytes(std::string_view text, std::size_t at, std::string_view reason) {
  const auto says = [&](std::string_view words) { return reason.find(words) != reason.npos; };
  const char c = text[at];
  const auto byte = static_cast<unsigned char>(c);
  if (says("ill-formed UTF-8"))
    return {at, fmt::format("0x{:02X} is not UTF-8: convert the file (iconv -t UTF-8) or repair it", byte)};
  if (says("control character"))
    return {at, c == '\n' ? "a line break inside a string: write \\n, or close the string with a quote"
                          : fmt::format("the byte 0x{:02X} inside a string: write \\u{:04x}", byte, byte)};
  if (says("after backslash"))
    return {at, fmt::format("'\\{}' is not an escape: write \\\\ for a backslash", token_at(text, at).front())};
  if (says("expected end of input"))
    return {at, c == ',' ? "a comma after the record: remove it, or put all records into [ ]" : "more text after the end"};
  return {at, ""};
}

// Describes a sign or a word in place of an expected one.
Fault misplaced(std::string_view text, std::size_t last, std::string_view reason) {
  const bool is_literal = reason.find("invalid literal") != reason.npos;
  // nlohmann reads "nul]" as a broken null, bracket included.
  if (is_literal && last > 0 && !is_part_of_word(text[last]) && is_part_of_word(text[last - 1])) --last;
  const std::size_t at = begin_of_token(text, last);
  const std::string found = token_at(text, at);
  for (const auto& [word, own] : kWords)
    if (found == word) return {at, fmt::format("{} is not JSON: write {}", word, own)};
  for (const auto& [words, expected] : kExpected) {
    if (reason.find(words) == reason.npos || !(is_literal || reason.find("unexpected") != reason.npos)) continue;
    const bool separator = expected.starts_with("','"), is_word = is_part_of_word(text[at]);
    const bool begins_value = is_word || std::string_view("\"{[").find(text[at]) != std::string_view::npos;
    const std::string_view hint = separator && begins_value          ? ": is a comma or a quote missing?"
                                  : expected == "':'" && is_word     ? ": is a quote missing?"
                                  : expected == "a value" && is_word ? ": strings need double quotes"
                                                                     : "";
    return {at, fmt::format("found '{}', expected {}{}", found, expected, hint)};
  }
  const std::size_t words = reason.rfind(" - ");
  return {last, std::string(words == reason.npos ? reason : reason.substr(words + 3))};
}

Fault fault_of(std::string_view text, std::size_t at, std::string_view reason) {
  if (reason.find("surrogate") != reason.npos) return lone_surrogate(text, at);
  if (text.find_first_not_of(" \t\r\n") == text.npos) return {0, "the text is empty"};
  if (at >= text.size()) return {text.size(), "the text ends too early: a bracket, a brace or a quote is missing"};
  if (Fault fault = broken_bytes(text, at, reason); !fault.what.empty()) return fault;
  const char c = text[at];
  if (const std::size_t comma = last_visible_before(text, at); (c == '}' || c == ']') && text[comma] == ',')
    return {comma, fmt::format("a comma before '{}': remove it", c)};
  if (c == '\'') return {at, "a single quote: JSON strings need double quotes"};
  if (c == '/' || c == '#') return {at, "JSON has no comments: remove it"};
  return misplaced(text, at, reason);
}

}  // namespace

void require_single_keys(std::string_view text, const std::string& where) {
  std::ptrdiff_t line = 1;
  SingleKeys keys(where, line);
  nlohmann::json::sax_parse(LineCounter{text.data(), &line}, LineCounter{text.data() + text.size(), &line}, &keys);
}

std::string replace_invalid_utf8(std::string_view text) {
  const auto quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(quoted).get<std::string>();
}

nlohmann::ordered_json json_number(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{}", value);
}

template <class Json>
Json parse_json(std::string_view text, const std::string& where) {
  const auto limit = [&](int depth, typename Json::parse_event_t, Json&) {
    require(depth <= kMaxJsonDepth, "{} is nested more than {} deep", where, kMaxJsonDepth);
    return true;
  };
  try {
    return Json::parse(text, limit);
  } catch (const nlohmann::json::parse_error& e) {
    const JsonFault fault = find_json_fault(text, e.byte == 0 ? 0 : e.byte - 1, e.what());
    fail("{} is not valid JSON: line {}, column {}: {}", where, fault.line, fault.column, fault.what);
  } catch (const nlohmann::json::exception& e) {  // "[json.exception...] number overflow parsing '1e999'"
    const std::string_view reason = e.what();
    fail("{} is not valid JSON: {}", where, reason.substr(std::min(reason.find("] ") + 2, reason.size())));
  }
}

template nlohmann::json parse_json(std::string_view, const std::string&);
template nlohmann::ordered_json parse_json(std::string_view, const std::string&);

JsonFault find_json_fault(std::string_view text, std::size_t at, std::string_view reason) {
  // nlohmann quotes the document between these two marks; its words must not be taken for the parser's.
  const std::size_t read = reason.find("; last read"), expected = reason.rfind("; expected ");
  std::string own(reason.substr(0, read));
  if (read != reason.npos && expected != reason.npos && expected > read) own += reason.substr(expected);
  Fault fault = fault_of(text, at, own);
  const std::string_view before = text.substr(0, fault.at);
  const std::size_t line_begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  const auto is_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return {fault.at, 1 + std::count(before.begin(), before.end(), '\n'),
          1 + std::count_if(before.begin() + static_cast<std::ptrdiff_t>(line_begin), before.end(), is_character),
          std::move(fault.what)};
}

std::string shortened(std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::string(text);
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string describe_repeated(std::string_view object, std::string_view key, std::string_view first, std::string_view second) {
  return fmt::format("the key '{}' appears twice in {}, as {} and as {}: remove one", key,
                     object.empty() ? "one object" : fmt::format("'{}'", object), first, second);
}

}  // namespace qft
