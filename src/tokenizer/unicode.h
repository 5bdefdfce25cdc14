// Code point properties as in HF tokenizers, UTF-8 helpers and NFC. Internal to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qft::tokenizer {

/// The class of a code point (low three bits of its properties). CR and LF are kNewline, other white space is kSpace.
enum CharClass : std::uint8_t { kOther, kLetter, kNumber, kMark, kSpace, kNewline };
inline constexpr std::uint8_t kClassMask = 7;
/// Regex \w as in Rust's regex crate.
inline constexpr std::uint8_t kWord = 8;
/// NFC may change this code point, reorder it, or join it to the previous one.
inline constexpr std::uint8_t kNfcActive = 16;
/// Rust's char::is_numeric.
inline constexpr std::uint8_t kNumeric = 32;

/// Returns one byte of properties for each of the 0x110000 code points.
const std::uint8_t* char_properties();

struct CodePoint {
  std::uint32_t value;
  std::uint32_t bytes;
};

/// Decodes the code point that starts at `p`, which must be valid UTF-8.
inline CodePoint decode_utf8(const char* p) {
  const auto b = [p](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(p[i])); };
  if (b(0) < 0x80) return {b(0), 1};
  if (b(0) < 0xE0) return {(b(0) & 0x1F) << 6 | (b(1) & 0x3F), 2};
  if (b(0) < 0xF0) return {(b(0) & 0x0F) << 12 | (b(1) & 0x3F) << 6 | (b(2) & 0x3F), 3};
  return {(b(0) & 0x07) << 18 | (b(1) & 0x3F) << 12 | (b(2) & 0x3F) << 6 | (b(3) & 0x3F), 4};
}

/// True for every byte of a character except its first.
inline bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

/// Returns the bytes of the character that begins with `lead`.
inline std::size_t char_bytes(char lead) {
  const auto b = static_cast<unsigned char>(lead);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

/// Appends `code_point` as UTF-8.
void append_utf8(std::uint32_t code_point, std::string& out);

/// Returns the start of the code point that ends at `text.data() + end` (end > 0, valid UTF-8).
inline std::size_t previous_code_point(std::string_view text, std::size_t end) {
  do --end;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80);
  return end;
}

/// Throws Error with the offset of the first byte that is not UTF-8.
void require_utf8(std::string_view text);

/// Appends `bytes` to `out`, with one U+FFFD for each maximal ill-formed part (Unicode 3.9, like Rust's from_utf8_lossy). With
/// `partial`, stops before an unfinished sequence at the end. Returns the number of bytes consumed.
std::size_t append_lossy(std::string_view bytes, bool partial, std::string& out);

/// Writes the NFC of `text` (valid UTF-8) to `out` and returns true; returns false if `text` already is NFC.
bool normalize_nfc(std::string_view text, std::string& out);

}  // namespace qft::tokenizer
