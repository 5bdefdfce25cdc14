// Words and how often they occur: the dictionary by which jieba cuts text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

class Dictionary {
 public:
  /// Of a file in UTF-8, a line "word frequency [tag]" each; of two lines for a word the later counts. Throws Error with the
  /// line that is none.
  static Dictionary read(const std::filesystem::path& file);
  /// Those words of jieba's own dictionary that have no Han character: text without any needs no others.
  static Dictionary latin();

  struct Match {
    std::size_t length = 1;
    double log_probability = 0.0;
  };
  /// All words that `text` (not empty) begins with, the shortest first; where there is none its first character, as a word
  /// that occurs once.
  void matches(std::u32string_view text, std::vector<Match>& out) const;
  bool contains(std::u32string_view word) const;

 private:
  struct Entry {
    std::uint32_t begin = 0, length = 0;  ///< in letters_
    std::int64_t frequency = 0;           ///< 0: no word, as in jieba
  };
  void add(std::u32string_view word, std::int64_t frequency);
  void sort();
  std::u32string_view word(const Entry& entry) const { return std::u32string_view(letters_).substr(entry.begin, entry.length); }

  std::u32string letters_;
  std::vector<Entry> entries_;  ///< in the order of their words: those with a common beginning are neighbours
  std::int64_t total_ = 0;      ///< of the frequencies of all lines
};

}  // namespace qft::eval
