// Words and their frequencies: the dictionary that jieba cuts text with.
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
  /// Reads a UTF-8 file with one "word frequency [tag]" per line; a later line for the same word replaces an earlier one. Throws
  /// Error naming the first malformed line.
  static Dictionary read(const std::filesystem::path& file);
  /// Returns the words in jieba's own dictionary that have no Han character. Text without Han characters needs no others.
  static Dictionary latin();

  struct Match {
    std::size_t length = 1;
    double log_probability = 0.0;
  };
  /// Stores in `out` all dictionary words that `text` (not empty) begins with, the shortest first. If there are none, stores the
  /// first character as a word of frequency 1.
  void matches(std::u32string_view text, std::vector<Match>& out) const;
  bool contains(std::u32string_view word) const;

 private:
  struct Entry {
    std::uint32_t begin = 0, length = 0;  ///< in letters_
    std::int64_t frequency = 0;           ///< 0: not a word, as in jieba
  };
  void add(std::u32string_view word, std::int64_t frequency);
  void sort();
  std::u32string_view word(const Entry& entry) const { return std::u32string_view(letters_).substr(entry.begin, entry.length); }

  std::u32string letters_;
  std::vector<Entry> entries_;  ///< sorted by word, so that words with a common prefix are neighbours
  std::int64_t total_ = 0;      ///< sum of the frequencies of all lines
};

}  // namespace qft::eval
