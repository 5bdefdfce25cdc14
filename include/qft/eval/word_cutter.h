// Cuts text into words as jieba.cut() does: the most probable path through its dictionary, plus its model for unknown words.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

class Dictionary;
class HiddenMarkov;

/// Reads jieba's files when the first text needs them: dict.txt, and finalseg/prob_*.py beside it. Without these files each Han
/// character is a word; all other words still equal jieba's. Not thread-safe.
class WordCutter {
 public:
  /// Uses the dictionary that JIEBA_DICT names, in jieba's format; else share/qft/jieba beside the program's folder; else no
  /// dictionary. Throws ConfigError if JIEBA_DICT does not name a file.
  WordCutter();
  ~WordCutter();

  /// Throws Error if jieba's files cannot be read.
  std::vector<std::u32string> cut(std::u32string_view text);

  /// True after a text with Han characters was cut into single characters because there is no dictionary.
  bool lacked_dictionary() const { return lacked_dictionary_; }

 private:
  bool has_files() const { return !dictionary_file_.empty(); }
  void load();
  void cut_block(std::u32string_view text, std::vector<std::u32string>& words) const;
  void cut_unknown(std::u32string_view text, std::vector<std::u32string>& words) const;

  std::filesystem::path dictionary_file_, model_folder_;  ///< empty without a dictionary
  bool named_ = false;                                    ///< JIEBA_DICT is set: its words may have any characters
  bool loaded_ = false, lacked_dictionary_ = false;
  std::unique_ptr<const Dictionary> dictionary_;
  std::unique_ptr<const HiddenMarkov> model_;
};

}  // namespace qft::eval
