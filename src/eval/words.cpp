#include "words.h"

#include <algorithm>

namespace qft::eval {
namespace {

using View = std::u32string_view;

bool is_closing_quote(char32_t c) {
  return c == U'\u201D' || c == U'\u2019';
}
bool ends_sentence(char32_t c) {
  return c == U'。' || c == U'！' || c == U'？' || c == U'?';
}

/// Inserts a line break after each match of `length(rest)` characters if `follows(next)` is true for the next character. That
/// character is consumed, as in the regular expression of rouge-chinese.
template <class Length, class Follows>
std::u32string break_lines(const std::u32string& text, Length length, Follows follows) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = length(View(text).substr(i));
    if (n == 0 || i + n >= text.size() || !follows(text[i + n])) {
      out += text[i++];
      continue;
    }
    out.append(text, i, n);
    out += U'\n';
    out += text[i + n];
    i += n + 1;
  }
  return out;
}

/// Equals rouge-chinese's cut_sent().
std::u32string with_sentence_breaks(std::u32string text) {
  const auto no_quote = [](char32_t c) { return !is_closing_quote(c); };
  const auto repeated = [](char32_t c, std::size_t n) {
    return [=](View rest) { return rest.starts_with(std::u32string(n, c)) ? n : 0; };
  };
  text = break_lines(text, [](View rest) -> std::size_t { return ends_sentence(rest[0]) ? 1 : 0; }, no_quote);
  text = break_lines(text, repeated(U'.', 6), no_quote);
  text = break_lines(text, repeated(U'…', 2), no_quote);
  text = break_lines(
      text,
      [](View rest) -> std::size_t { return rest.size() > 1 && ends_sentence(rest[0]) && is_closing_quote(rest[1]) ? 2 : 0; },
      [](char32_t c) { return c != U'，' && !ends_sentence(c); });
  while (!text.empty() && is_space(text.back())) text.pop_back();
  return text;
}

}  // namespace

std::u32string code_points(std::string_view utf8) {
  std::u32string out;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead >> 5 == 6 ? 2 : lead >> 4 == 14 ? 3 : lead >> 3 == 30 ? 4 : 0;
    char32_t c = length == 1 ? lead : lead & (0x7FU >> length);
    bool valid = length > 0 && i + length <= utf8.size();
    for (std::size_t k = 1; valid && k < length; ++k) {
      const auto byte = static_cast<unsigned char>(utf8[i + k]);
      valid = byte >> 6 == 2;
      c = c << 6 | (byte & 0x3FU);
    }
    out += valid ? c : U'\uFFFD';
    i += valid ? length : 1;
  }
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::vector<std::u32string> sentence_words(const std::vector<std::u32string>& words) {
  std::u32string joined;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) joined += U' ';
    joined += words[i];
  }
  const std::u32string text = with_sentence_breaks(std::move(joined));
  std::vector<std::u32string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(U'\n', begin), text.size());
    const std::size_t before = out.size();
    for (std::size_t i = begin; i < end;) {
      std::size_t stop = i;
      while (stop < end && !is_space(text[stop])) ++stop;
      if (stop > i) out.emplace_back(text, i, stop - i);
      i = stop + (stop == i ? 1 : 0);
    }
    if (end > begin && out.size() == before) out.emplace_back();
    begin = end + 1;
  }
  return out;
}

}  // namespace qft::eval
