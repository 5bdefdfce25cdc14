// Texts as sequences of Unicode characters, with what Python's str knows of them. Internal to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::jinja {

/// What a character is, as the methods of Python's str tell (isalpha() ...). `word_start` and `word`: of an identifier.
enum CharFlag : std::uint32_t {
  kAlpha = 1,
  kDecimal = 2,
  kDigit = 4,
  kNumeric = 8,
  kSpace = 16,
  kPrintable = 32,
  kLower = 64,
  kUpper = 128,
  kTitle = 256,
  kWordStart = 512,
  kWord = 1024,
  kCaseIgnorable = 2048,
};

std::uint32_t char_flags(char32_t c);
inline bool has_flag(char32_t c, std::uint32_t flag) {
  return (char_flags(c) & flag) != 0;
}
/// 0 to 9 of a decimal digit of any script, else -1.
int digit_value(char32_t c);

/// The character at byte `at`, which it moves past it. Bytes that are no UTF-8 are characters U+FFFD of one byte each.
char32_t next_char(std::string_view text, std::size_t& at);
void append_char(std::string& out, char32_t c);

bool is_ascii(std::string_view text);
/// How many characters.
std::size_t char_count(std::string_view text);
/// The byte at which character `index` begins; the text's size for the one after the last.
std::size_t char_offset(std::string_view text, std::size_t index);
/// Characters [begin, end).
std::string_view char_slice(std::string_view text, std::size_t begin, std::size_t end);
std::u32string to_chars(std::string_view text);
std::string to_text(std::u32string_view chars);

enum class Case { upper, lower, title, swap };
/// str.upper(), lower(), title(), swapcase().
std::string change_case(std::string_view text, Case to);
/// str.capitalize().
std::string capitalize(std::string_view text);
/// str.casefold(), as far as lower() of upper() tells it.
std::string fold_case(std::string_view text);

/// str.strip(): the text without the characters of `chars` at the ends asked for; null: without blank space.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);
/// Bytes up to the end of the line that begins at `at` and bytes of its end ("\r\n" is one), as str.splitlines() sees lines.
struct Line {
  std::size_t end, next;
};
Line next_line(std::string_view text, std::size_t at);

}  // namespace qft::jinja
