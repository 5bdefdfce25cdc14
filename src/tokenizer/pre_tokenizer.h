// Cuts normalised text into words. Internal to the module.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pattern.h"
#include "scanner.h"

namespace qft::tokenizer {

/// The treatment of the parts that a Split's pattern matches (HF: SplitDelimiterBehavior).
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A pattern that is a plain string.
struct Literal {
  std::string text;
};
/// The Digits pre-tokenizer: single numbers (\p{N}), or runs of them.
struct Digits {
  bool individual;
};
/// ByteLevel's add_prefix_space: a part that does not begin with a space gets one.
struct PrefixSpace {};
struct Split {
  std::variant<Regex, Literal> pattern;
  SplitBehavior behavior;
  bool invert;
};

/// Buffers that a thread reuses for every text.
struct PreTokenizerScratch {
  RegexScratch regex;
  std::vector<Piece> matches, current, next;
  std::string text;
};

/// A sequence of stages; each stage cuts the parts from the stage before.
class PreTokenizer {
 public:
  using Stage = std::variant<ScannerKind, Split, Digits, PrefixSpace>;

  void add(Stage stage) { stages_.push_back(std::move(stage)); }

  /// Calls `visit(begin, end, limit)` for every word of `text` (valid UTF-8); words are not empty. Memory up to `limit` may be
  /// read.
  template <class Visit>
  void split(std::string_view text, PreTokenizerScratch& scratch, Visit&& visit) const {
    const ScannerKind* last = stages_.empty() ? nullptr : std::get_if<ScannerKind>(&stages_.back());
    if (last == nullptr || stages_.size() > 1) text = cut(text, stages_.size() - (last != nullptr), scratch);
    const char* const limit = text.data() + text.size();
    const auto word = [&](const char* begin, const char* end) { visit(begin, end, limit); };
    if (last != nullptr && stages_.size() == 1) return scan(*last, text, word);
    for (const Piece& piece : scratch.current) {
      const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
      if (last != nullptr)
        scan(*last, part, word);
      else
        word(part.data(), part.data() + part.size());
    }
  }

 private:
  /// Runs the first `stages` stages; leaves the parts in scratch.current and returns the text that they refer to.
  std::string_view cut(std::string_view text, std::size_t stages, PreTokenizerScratch& scratch) const;

  std::vector<Stage> stages_;
};

/// Appends to `out` the parts that `behavior` makes from `matches`, without empty parts.
void apply_behavior(const std::vector<Piece>& matches, SplitBehavior behavior, bool invert, std::size_t offset,
                    std::vector<Piece>& out);

}  // namespace qft::tokenizer
