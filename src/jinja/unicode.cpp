#include "unicode.h"

#include "qft/jinja/strip.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace qft::jinja {
namespace {

/// Every `step`-th character from `first` to `last` maps to itself plus `delta`.
struct CaseRun {
  char32_t first, last, step;
  std::int32_t delta;
};
/// A character that maps to several characters.
struct CaseText {
  char32_t from;
  const char* to;
};

#include "unicode_tables.inc"

std::uint32_t find_flags(char32_t c) {
  const std::uint64_t key = (static_cast<std::uint64_t>(c) << 16) | 0xFFFF;
  return static_cast<std::uint32_t>(*(std::upper_bound(std::begin(kRuns), std::end(kRuns), key) - 1) & 0xFFFF);
}

std::array<std::uint16_t, 128> make_ascii_flags() {
  std::array<std::uint16_t, 128> flags{};
  for (char32_t c = 0; c < 128; ++c) flags[c] = static_cast<std::uint16_t>(find_flags(c));
  return flags;
}

template <std::size_t runs, std::size_t texts>
void append_changed(std::string& out, char32_t c, const CaseRun (&run_table)[runs], const CaseText (&text_table)[texts]) {
  const CaseText* text = std::lower_bound(std::begin(text_table), std::end(text_table), c,
                                          [](const CaseText& entry, char32_t value) { return entry.from < value; });
  if (text != std::end(text_table) && text->from == c) {
    out += text->to;
    return;
  }
  // Runs with steps overlap: the last one that begins before a character may not contain it.
  const CaseRun* run = std::upper_bound(std::begin(run_table), std::end(run_table), c,
                                        [](char32_t value, const CaseRun& entry) { return value < entry.first; });
  for (int tries = 0; run != std::begin(run_table) && tries < 4; ++tries) {
    --run;
    if (c <= run->last && (c - run->first) % run->step == 0) {
      append_char(out, static_cast<char32_t>(static_cast<std::int64_t>(c) + run->delta));
      return;
    }
  }
  append_char(out, c);
}

bool is_cased(char32_t c) {
  return has_flag(c, kLower | kUpper | kTitle);
}

// Whether a capital sigma ends a word and becomes the final form.
bool is_final_sigma(std::string_view text, std::size_t begin, std::size_t end) {
  bool before = false;
  for (std::size_t at = begin; at > 0;) {
    std::size_t start = at - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t next = start;
    const char32_t c = next_char(text, next);
    at = start;
    if (has_flag(c, kCaseIgnorable)) continue;
    before = is_cased(c);
    break;
  }
  if (!before) return false;
  for (std::size_t at = end; at < text.size();) {
    const char32_t c = next_char(text, at);
    if (!has_flag(c, kCaseIgnorable)) return !is_cased(c);
  }
  return true;
}

void append_upper(std::string& out, char32_t c) {
  append_changed(out, c, kUpperRuns, kUpperTexts);
}
void append_title(std::string& out, char32_t c) {
  append_changed(out, c, kTitleRuns, kTitleTexts);
}
void append_lower(std::string& out, std::string_view text, char32_t c, std::size_t begin, std::size_t end) {
  if (c == 0x3A3)
    append_char(out, is_final_sigma(text, begin, end) ? 0x3C2 : 0x3C3);
  else
    append_changed(out, c, kLowerRuns, kLowerTexts);
}

}  // namespace

std::uint32_t char_flags(char32_t c) {
  static const std::array<std::uint16_t, 128> ascii = make_ascii_flags();
  return c < 128 ? ascii[c] : find_flags(c);
}

int digit_value(char32_t c) {
  if (c < 128) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  const char32_t* zero = std::upper_bound(std::begin(kZeros), std::end(kZeros), c);
  if (zero == std::begin(kZeros)) return -1;
  const char32_t value = c - *(zero - 1);
  return value < 10 ? static_cast<int>(value) : -1;
}

char32_t next_char(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at++);
  if (first < 0x80) return first;
  const std::size_t more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  if (first < 0xC2 || first > 0xF4 || at + more > text.size()) return 0xFFFD;
  char32_t c = first & (0x3FU >> more);
  for (std::size_t i = 0; i < more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0xFFFD;
    c = (c << 6) | (byte(at + i) & 0x3FU);
  }
  at += more;
  return c;
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      out += static_cast<char>(0xE0 | (c >> 12));
    } else {
      out += static_cast<char>(0xF0 | (c >> 18));
      out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    }
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
  }
  out += static_cast<char>(0x80 | (c & 0x3F));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
}

std::size_t char_count(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::size_t char_offset(std::string_view text, std::size_t index) {
  std::size_t at = 0;
  while (at < text.size()) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && index-- == 0) return at;
    ++at;
  }
  return text.size();
}

std::string_view char_slice(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin >= end) return {};
  const std::size_t from = char_offset(text, begin);
  return text.substr(from, char_offset(text.substr(from), end - begin));
}

std::u32string to_chars(std::string_view text) {
  std::u32string chars;
  chars.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) chars += next_char(text, at);
  return chars;
}

std::string to_text(std::u32string_view chars) {
  std::string text;
  text.reserve(chars.size());
  for (const char32_t c : chars) append_char(text, c);
  return text;
}

std::string change_case(std::string_view text, Case to) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    Case now = to;
    if (to == Case::title && in_word) now = Case::lower;
    if (to == Case::swap) now = has_flag(c, kUpper) ? Case::lower : Case::upper;
    in_word = is_cased(c);
    if (now == Case::upper)
      append_upper(out, c);
    else if (now == Case::title)
      append_title(out, c);
    else
      append_lower(out, text, c, begin, at);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    if (begin == 0)
      append_title(out, c);
    else
      append_lower(out, text, c, begin, at);
  }
  return out;
}

std::string fold_case(std::string_view text) {
  return is_ascii(text) ? change_case(text, Case::lower) : change_case(change_case(text, Case::upper), Case::lower);
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const std::u32string set = chars != nullptr ? to_chars(*chars) : std::u32string();
  const auto goes = [&](char32_t c) { return chars == nullptr ? has_flag(c, kSpace) : set.find(c) != set.npos; };
  while (left && !text.empty()) {
    std::size_t at = 0;
    if (!goes(next_char(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    std::size_t start = text.size() - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    std::size_t at = start;
    if (!goes(next_char(text, at))) break;
    text = text.substr(0, start);
  }
  return text;
}

std::string_view strip_blanks(std::string_view text) {
  return strip(text, nullptr, true, true);
}

Line next_line(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    if (c == '\r' && at < text.size() && text[at] == '\n') return {begin, at + 1};
    if ((c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029) return {begin, at};
  }
  return {text.size(), text.size()};
}

}  // namespace qft::jinja
