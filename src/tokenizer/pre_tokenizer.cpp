#include "pre_tokenizer.h"

#include "qft/core/error.h"

#include <algorithm>

namespace qft::tokenizer {
namespace {

struct KnownPattern {
  ScannerKind kind;
  std::string_view pattern;
};
constexpr KnownPattern kKnownPatterns[] = {
    {ScannerKind::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {ScannerKind::cl100k_digit,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {ScannerKind::cl100k_digits3,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {ScannerKind::cl100k_marks,
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

void cut_literal(const std::string& literal, std::string_view text, std::vector<Piece>& out) {
  std::size_t covered = 0;
  for (std::size_t at; (at = text.find(literal, covered)) != std::string_view::npos; covered = at + literal.size()) {
    if (covered < at) out.push_back({covered, at, false});
    out.push_back({at, at + literal.size(), true});
  }
  if (covered < text.size()) out.push_back({covered, text.size(), false});
}

void cut_digits(std::string_view text, std::vector<Piece>& out) {
  const std::uint8_t* properties = char_properties();
  std::size_t covered = 0;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint c = decode_utf8(text.data() + i);
    if (properties[c.value] & kNumeric) {
      if (covered < i) out.push_back({covered, i, false});
      out.push_back({i, i + c.bytes, true});
      covered = i + c.bytes;
    }
    i += c.bytes;
  }
  if (covered < text.size()) out.push_back({covered, text.size(), false});
}

/// Joins each match to its neighbour `result.back()`, like HF's fold over the matches.
void fold(const std::vector<Piece>& matches, SplitBehavior behavior, bool invert, std::vector<Piece>& result) {
  const bool contiguous = behavior == SplitBehavior::contiguous;
  const bool forward = behavior != SplitBehavior::merged_with_next;
  bool previous = false;
  const std::size_t start = result.size();
  for (std::size_t k = 0; k < matches.size(); ++k) {
    const Piece& piece = forward ? matches[k] : matches[matches.size() - 1 - k];
    const bool match = piece.match != invert;
    const bool join = contiguous ? match == previous : match && !previous;
    if (join && result.size() > start)
      (forward ? result.back().end : result.back().begin) = forward ? piece.end : piece.begin;
    else
      result.push_back({piece.begin, piece.end});
    previous = match;
  }
  if (!forward) std::reverse(result.begin() + start, result.end());
}

/// Rebuilds the text with a space before every part that does not begin with one.
std::string_view prefix_spaces(std::string_view text, PreTokenizerScratch& scratch) {
  std::string result;
  scratch.next.clear();
  for (const Piece& piece : scratch.current) {
    const std::size_t begin = result.size();
    if (text[piece.begin] != ' ') result += ' ';
    result += text.substr(piece.begin, piece.end - piece.begin);
    scratch.next.push_back({begin, result.size()});
  }
  scratch.current.swap(scratch.next);
  scratch.text = std::move(result);
  return scratch.text;
}

}  // namespace

std::optional<ScannerKind> scanner_for(std::string_view pattern) {
  for (const KnownPattern& known : kKnownPatterns)
    if (known.pattern == pattern) return known.kind;
  return std::nullopt;
}

std::string_view pattern_of(ScannerKind kind) {
  for (const KnownPattern& known : kKnownPatterns)
    if (known.kind == kind) return known.pattern;
  QFT_ASSERT(false, "scanner {} has no pattern", static_cast<int>(kind));
}

void apply_behavior(const std::vector<Piece>& matches, SplitBehavior behavior, bool invert, std::size_t offset,
                    std::vector<Piece>& out) {
  const std::size_t start = out.size();
  if (behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed) {
    for (const Piece& piece : matches)
      if (behavior == SplitBehavior::isolated || piece.match == invert) out.push_back({piece.begin, piece.end});
  } else {
    fold(matches, behavior, invert, out);
  }
  const auto empty = [](const Piece& piece) { return piece.begin == piece.end; };
  out.erase(std::remove_if(out.begin() + static_cast<std::ptrdiff_t>(start), out.end(), empty), out.end());
  for (std::size_t i = start; i < out.size(); ++i) {
    out[i].begin += offset;
    out[i].end += offset;
  }
}

std::string_view PreTokenizer::cut(std::string_view text, std::size_t stages, PreTokenizerScratch& scratch) const {
  scratch.current.clear();
  if (!text.empty()) scratch.current.push_back({0, text.size()});
  for (std::size_t s = 0; s < stages; ++s) {
    const Stage& stage = stages_[s];
    if (std::holds_alternative<PrefixSpace>(stage)) {
      text = prefix_spaces(text, scratch);
      continue;
    }
    scratch.next.clear();
    for (const Piece& piece : scratch.current) {
      const std::string_view part = text.substr(piece.begin, piece.end - piece.begin);
      scratch.matches.clear();
      SplitBehavior behavior = SplitBehavior::isolated;
      bool invert = false;
      if (const auto* kind = std::get_if<ScannerKind>(&stage)) {
        scan(*kind, part, [&](const char* begin, const char* end) {
          scratch.matches.push_back(
              {static_cast<std::size_t>(begin - part.data()), static_cast<std::size_t>(end - part.data()), true});
        });
      } else if (const auto* digits = std::get_if<Digits>(&stage)) {
        cut_digits(part, scratch.matches);
        if (!digits->individual) behavior = SplitBehavior::contiguous;
      } else if (const auto* split = std::get_if<Split>(&stage)) {
        behavior = split->behavior;
        invert = split->invert;
        if (const auto* regex = std::get_if<Regex>(&split->pattern))
          regex->cut(part, scratch.regex, scratch.matches);
        else
          cut_literal(std::get<Literal>(split->pattern).text, part, scratch.matches);
      }
      apply_behavior(scratch.matches, behavior, invert, piece.begin, scratch.next);
    }
    scratch.current.swap(scratch.next);
  }
  return text;
}

}  // namespace qft::tokenizer
