// jieba's model of words that no dictionary has: each character begins a word, is in the middle of one, ends one, or is one;
// the most probable sequence of these states (Viterbi 1967) cuts a text.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

/// What jieba takes for a Chinese character.
constexpr bool is_han(char32_t c) {
  return c >= 0x4E00 && c <= 0x9FD5;
}

class HiddenMarkov {
 public:
  /// prob_start.py, prob_trans.py and prob_emit.py of `folder`: natural logarithms, as jieba's finalseg has them. Throws Error.
  static HiddenMarkov read(const std::filesystem::path& folder);

  /// Appends the words of `text`: Han characters, at least one.
  void cut(std::u32string_view text, std::vector<std::u32string>& words) const;

 private:
  enum State : std::size_t { begin, end, middle, single, kStates };  // B, E, M, S: where two are as probable, the later counts
  using Row = std::array<double, kStates>;
  std::vector<State> states_of(std::u32string_view text) const;

  Row start_{};
  std::array<Row, kStates> transition_{};  ///< from, to
  std::vector<Row> emission_;              ///< of each Han character
};

}  // namespace qft::eval
