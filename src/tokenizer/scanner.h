// Hand-written equivalents of the best-known pre-tokenizer patterns, several times faster than a regex engine, based on
// char_properties(). Internal to the module.
#pragma once

#include <optional>
#include <string_view>

#include "unicode.h"

namespace qft::tokenizer {

enum class ScannerKind {
  gpt2,            ///< ByteLevel's own pattern
  cl100k_digit,    ///< Qwen2, Qwen2.5, Qwen3: every digit is a word
  cl100k_digits3,  ///< Llama 3: up to three digits
  cl100k_marks,    ///< Qwen3.5: marks belong to words, every digit is a word
};

/// Returns the scanner with exactly this pattern text, if there is one.
std::optional<ScannerKind> scanner_for(std::string_view pattern);
/// Returns the pattern that a scanner implements.
std::string_view pattern_of(ScannerKind kind);

/// Walks over valid UTF-8 text, one word at a time.
template <ScannerKind kind>
class Scanner {
 public:
  explicit Scanner(std::string_view text) : end_(text.data() + text.size()), properties_(char_properties()) {}

  /// Returns the end of the word that starts at `p` (before the end of the text).
  const char* word_end(const char* p) const {
    if constexpr (kind == ScannerKind::gpt2)
      return gpt2_word_end(p);
    else
      return cl100k_word_end(p);
  }

 private:
  static constexpr int kMaxDigits = kind == ScannerKind::cl100k_digits3 ? 3 : 1;

  struct Char {
    std::uint8_t cls;
    std::uint32_t bytes;
  };
  Char at(const char* p) const {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) [[likely]]
      return {static_cast<std::uint8_t>(properties_[byte] & kClassMask), 1};
    const CodePoint c = decode_utf8(p);
    return {static_cast<std::uint8_t>(properties_[c.value] & kClassMask), c.bytes};
  }
  static bool letter(std::uint8_t cls) { return cls == kLetter || (kind == ScannerKind::cl100k_marks && cls == kMark); }
  static bool symbol(std::uint8_t cls) { return cls == kOther || (kind != ScannerKind::cl100k_marks && cls == kMark); }
  static bool space(std::uint8_t cls) { return cls >= kSpace; }

  template <class Predicate>
  const char* skip(const char* p, Predicate&& wanted) const {
    while (p < end_) {
      const Char c = at(p);
      if (!wanted(c.cls)) break;
      p += c.bytes;
    }
    return p;
  }

  /// Returns the end of a contraction ('s 't 're 've 'm 'll 'd) at the apostrophe `p`, or null.
  const char* contraction_end(const char* p) const {
    constexpr bool kAnyCase = kind != ScannerKind::gpt2;
    const auto lower = [&](const char* q) -> char {
      if (q >= end_) return '\0';
      return kAnyCase && *q >= 'A' && *q <= 'Z' ? static_cast<char>(*q + 32) : *q;
    };
    const char a = lower(p + 1);
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
    const char b = a != '\0' ? lower(p + 2) : '\0';
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
    // With case ignored, the long s, U+017F, is an s.
    if (kAnyCase && end_ - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return p + 3;
    return nullptr;
  }

  const char* cl100k_word_end(const char* p) const {
    const Char first = at(p);
    const char* next = p + first.bytes;
    if (letter(first.cls)) return skip(next, letter);
    if (*p == '\'')
      if (const char* end = contraction_end(p)) return end;
    if (first.cls == kNumber) {
      for (int digits = 1; digits < kMaxDigits && next < end_; ++digits) {
        const Char c = at(next);
        if (c.cls != kNumber) break;
        next += c.bytes;
      }
      return next;
    }
    if (first.cls != kNewline && next < end_) {
      const Char second = at(next);
      if (letter(second.cls)) return skip(next + second.bytes, letter);
      if (*p == ' ' && symbol(second.cls)) return symbols_end(next + second.bytes);
    }
    if (symbol(first.cls)) return symbols_end(next);
    return spaces_end(p);
  }

  const char* symbols_end(const char* p) const {
    p = skip(p, symbol);
    while (p < end_ && (*p == '\r' || *p == '\n')) ++p;
    return p;
  }

  /// \s*[\r\n]+ | \s+(?!\S) | \s+ : up to the last line end; without one, all at the end of the text, otherwise all but the last.
  const char* spaces_end(const char* p) const {
    const char* last_newline_end = nullptr;
    const char* last = p;
    const char* q = p;
    while (q < end_) {
      const Char c = at(q);
      if (!space(c.cls)) break;
      last = q;
      q += c.bytes;
      if (kind != ScannerKind::gpt2 && c.cls == kNewline) last_newline_end = q;
    }
    if (last_newline_end != nullptr) return last_newline_end;
    return q == end_ || last == p ? q : last;
  }

  const char* gpt2_word_end(const char* p) const {
    if (*p == '\'')
      if (const char* end = contraction_end(p)) return end;
    const char* start = *p == ' ' && p + 1 < end_ ? p + 1 : p;
    const Char c = at(start);
    const char* next = start + c.bytes;
    if (c.cls == kLetter) return skip(next, letter);
    if (c.cls == kNumber) return skip(next, [](std::uint8_t cls) { return cls == kNumber; });
    if (symbol(c.cls)) return skip(next, symbol);
    return spaces_end(p);
  }

  const char* end_;
  const std::uint8_t* properties_;
};

/// Calls `visit(begin, end)` (pointers into `text`) for every word.
template <class Visit>
void scan(ScannerKind kind, std::string_view text, Visit&& visit) {
  const auto run = [&]<ScannerKind k>() {
    const Scanner<k> scanner(text);
    const char* const end = text.data() + text.size();
    for (const char* p = text.data(); p < end;) {
      const char* const next = scanner.word_end(p);
      visit(p, next);
      p = next;
    }
  };
  switch (kind) {
    case ScannerKind::gpt2:
      return run.template operator()<ScannerKind::gpt2>();
    case ScannerKind::cl100k_digit:
      return run.template operator()<ScannerKind::cl100k_digit>();
    case ScannerKind::cl100k_digits3:
      return run.template operator()<ScannerKind::cl100k_digits3>();
    case ScannerKind::cl100k_marks:
      return run.template operator()<ScannerKind::cl100k_marks>();
  }
}

}  // namespace qft::tokenizer
