// Finds added tokens in a text before pre-tokenisation. Internal to the module.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qft::tokenizer {

/// An added token with its flags, named as in tokenizer.json.
struct AddedToken {
  std::string content;
  std::int32_t id = -1;
  bool special = false;
  bool single_word = false;  ///< no word character may be next to the token
  bool lstrip = false;       ///< includes the white space on its left
  bool rstrip = false;
  bool normalized = false;  ///< matched in the normalised text, in its normalised form

  bool same_flags(const AddedToken& other) const {
    return special == other.special && single_word == other.single_word && lstrip == other.lstrip && rstrip == other.rstrip &&
           normalized == other.normalized;
  }
};

/// Finds added tokens in a text: leftmost, longest, without overlaps.
class AddedTokenMatcher {
 public:
  /// `pattern` is the text to match: the content, or its normalised form. Throws Error if two tokens have the same pattern.
  void add(const AddedToken& token, std::string_view pattern);
  bool empty() const { return tokens_.empty(); }

  /// Calls `text_part(std::string_view)` and `token(id)` in text order (HF: AddedVocabulary::find_matches).
  template <class TextPart, class Token>
  void split(std::string_view text, TextPart&& text_part, Token&& token) const {
    std::size_t covered = 0;
    std::size_t from = 0;
    Match match;
    while (find(text, from, match)) {
      from = match.end;
      if (!accept(text, covered, match)) continue;
      if (covered < match.begin) text_part(text.substr(covered, match.begin - covered));
      token(match.token->id);
      covered = match.end;
    }
    if (covered < text.size()) text_part(text.substr(covered));
  }

 private:
  struct Match {
    std::size_t begin, end;
    const AddedToken* token;
  };
  struct Node {
    std::vector<std::pair<char, std::int32_t>> edges;
    std::int32_t token = -1;
  };
  bool find(std::string_view text, std::size_t from, Match& match) const;
  std::size_t next_candidate(std::string_view text, std::size_t from) const;
  /// Applies single_word, lstrip and rstrip; returns false if the match does not count.
  static bool accept(std::string_view text, std::size_t covered, Match& match);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                ///< a trie; node 0 is the root
  std::array<std::int32_t, 256> first_{};  ///< node after the first byte; 0 if none
  std::string first_bytes_;
};

}  // namespace qft::tokenizer
