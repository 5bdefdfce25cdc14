// Texts as sequences of Unicode characters, with the properties that Python's str uses. Internal to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::jinja {

/// Character properties for the methods of Python's str (isalpha() ...). kWordStart and kWord: characters of an identifier.
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
/// Returns 0 to 9 for a decimal digit of any script, else -1.
int digit_value(char32_t c);

/// Returns the character at byte `at` and advances `at` past it. Each byte of invalid UTF-8 becomes a character U+FFFD.
char32_t next_char(std::string_view text, std::size_t& at);
void append_char(std::string& out, char32_t c);

bool is_ascii(std::string_view text);
/// Number of characters.
std::size_t char_count(std::string_view text);
/// Returns the byte offset of character `index`; the text's size for the index after the last.
std::size_t char_offset(std::string_view text, std::size_t index);
/// Returns characters [begin, end).
std::string_view char_slice(std::string_view text, std::size_t begin, std::size_t end);
std::u32string to_chars(std::string_view text);
std::string to_text(std::u32string_view chars);

enum class Case { upper, lower, title, swap };
/// str.upper(), lower(), title(), swapcase().
std::string change_case(std::string_view text, Case to);
/// str.capitalize().
std::string capitalize(std::string_view text);
/// str.casefold(), approximated by lower() of upper().
std::string fold_case(std::string_view text);

/// str.strip() at the requested ends: removes the characters in `chars`; null: blanks.
std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right);
/// The line that begins at `at`, as in str.splitlines(): its end, and the next line's start ("\r
/// " is one line end).
struct Line {
  std::size_t end, next;
};
Line next_line(std::string_view text, std::size_t at);

}  // namespace qft::jinja
