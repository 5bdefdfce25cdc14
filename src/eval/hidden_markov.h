// jieba's model for words outside the dictionary: each character begins a word, is inside one, ends one or is a word. The most
// probable sequence of these states (Viterbi 1967) cuts the text.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

/// jieba's range of Chinese characters.
constexpr bool is_han(char32_t c) {
  return c >= 0x4E00 && c <= 0x9FD5;
}

class HiddenMarkov {
 public:
  /// Reads prob_start.py, prob_trans.py and prob_emit.py in `folder`: natural logarithms, as in jieba's finalseg. Throws Error.
  static HiddenMarkov read(const std::filesystem::path& folder);

  /// Appends the words of `text`, which has one or more characters, all Han.
  void cut(std::u32string_view text, std::vector<std::u32string>& words) const;

 private:
  enum State : std::size_t { begin, end, middle, single, kStates };  // B, E, M, S: on a tie the later state wins
  using Row = std::array<double, kStates>;
  std::vector<State> states_of(std::u32string_view text) const;

  Row start_{};
  std::array<Row, kStates> transition_{};  ///< [from][to]
  std::vector<Row> emission_;              ///< per Han character
};

}  // namespace qft::eval
