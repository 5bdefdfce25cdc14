// Words of a text as jieba.cut() has them: the most probable way through its dictionary, and its model of unknown words.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

class Dictionary;
class HiddenMarkov;

/// jieba's files, which are read when the first text needs them: dict.txt, and beside it finalseg/prob_*.py. Where there are
/// none, each Han character is a word; all other words are jieba's all the same. Not for several threads at a time.
class WordCutter {
 public:
  /// Of the dictionary that JIEBA_DICT names, in jieba's format; else of share/qft/jieba beside the program's folder; else of
  /// none. Throws ConfigError where JIEBA_DICT names no file.
  WordCutter();
  ~WordCutter();

  /// Throws Error where jieba's files cannot be read.
  std::vector<std::u32string> cut(std::u32string_view text);

  /// True once Han characters were cut one by one for want of a dictionary.
  bool lacked_dictionary() const { return lacked_dictionary_; }

 private:
  bool has_files() const { return !dictionary_file_.empty(); }
  void load();
  void cut_block(std::u32string_view text, std::vector<std::u32string>& words) const;
  void cut_unknown(std::u32string_view text, std::vector<std::u32string>& words) const;

  std::filesystem::path dictionary_file_, model_folder_;  ///< empty: there are none
  bool named_ = false;                                    ///< by JIEBA_DICT: it may have words of any characters
  bool loaded_ = false, lacked_dictionary_ = false;
  std::unique_ptr<const Dictionary> dictionary_;
  std::unique_ptr<const HiddenMarkov> model_;
};

}  // namespace qft::eval
