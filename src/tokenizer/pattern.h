// A pattern of tokenizer.json, compiled by PCRE2. Internal to the module.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// A part of a text; `match` says whether the pattern matched it or it lies between matches.
struct Piece {
  std::size_t begin, end;
  bool match = false;
};

/// Rewrites a pattern in Oniguruma's Ruby syntax, which HF tokenizers uses, as PCRE2 (UTF, UCP, MULTILINE).
/// Throws Error naming a construct that the two read differently and that is not translated.
std::string translate_pattern(std::string_view pattern);

/// What one thread needs to match.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

/// Immutable. \p{..} follows the Unicode version of the PCRE2 library.
class Regex {
 public:
  /// Throws Error naming the pattern where it cannot be translated or compiled.
  explicit Regex(const std::string& pattern);

  /// Cuts `text` (valid UTF-8, not empty) into matches and what lies between, in order, covering all of it;
  /// as HF does, there may be empty matches. Throws Error where matching passes PCRE2's limits.
  void cut(std::string_view text, RegexScratch& scratch, std::vector<Piece>& out) const;

 private:
  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace qft::tokenizer
