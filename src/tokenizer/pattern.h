// Matches patterns of tokenizer.json with PCRE2. Internal to the module.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// A part of a text; `match`: true for a match of the pattern, false for text between matches.
struct Piece {
  std::size_t begin, end;
  bool match = false;
};

/// Rewrites a pattern from Oniguruma's Ruby syntax, which HF tokenizers uses, for PCRE2 (UTF, UCP, MULTILINE). Throws Error
/// with a construct that the two interpret differently and that has no translation.
std::string translate_pattern(std::string_view pattern);

/// A thread's buffers for matching.
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
  /// Throws Error with the pattern if it cannot be translated or compiled.
  explicit Regex(const std::string& pattern);

  /// Cuts `text` (valid UTF-8, not empty) into matches and the text between them, in order, without gaps. As in HF, empty
  /// matches are possible. Throws Error if matching exceeds PCRE2's limits.
  void cut(std::string_view text, RegexScratch& scratch, std::vector<Piece>& out) const;

 private:
  std::string pattern_;
  std::shared_ptr<void> code_;
};

}  // namespace qft::tokenizer
