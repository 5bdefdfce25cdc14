#include "qft/eval/word_cutter.h"

#include "qft/core/error.h"
#include "qft/core/program.h"

#include <algorithm>
#include <cstdlib>

#include "dictionary.h"
#include "hidden_markov.h"

namespace qft::eval {
namespace {

namespace fs = std::filesystem;
using View = std::u32string_view;

constexpr const char* kDictionary = "dict.txt";
constexpr const char* kModelFolder = "finalseg";

bool is_digit(char32_t c) {
  return c >= U'0' && c <= U'9';
}
bool is_alphanumeric(char32_t c) {
  return (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z') || is_digit(c);
}
/// True for characters that jieba keeps together before it looks up words.
bool in_block(char32_t c) {
  return is_han(c) || is_alphanumeric(c) || View(U"+#&._%-").find(c) != View::npos;
}

/// Returns the end of the run of `wanted` characters that begins at `from`.
std::size_t run_end(View text, std::size_t from, bool (*wanted)(char32_t)) {
  while (from < text.size() && wanted(text[from])) ++from;
  return from;
}

/// Returns the length of letters and digits, a decimal fraction and a percent sign at the start of `text`; 0 if none.
std::size_t number_or_name_at(View text) {
  std::size_t end = run_end(text, 0, is_alphanumeric);
  if (end == 0) return 0;
  if (end + 1 < text.size() && text[end] == U'.' && is_digit(text[end + 1])) end = run_end(text, end + 1, is_digit);
  if (end < text.size() && text[end] == U'%') ++end;
  return end;
}

/// Cuts text without Han characters into numbers, names and the runs of marks between them.
void cut_latin(View text, std::vector<std::u32string>& words) {
  std::size_t marks = 0;  // start of the current run of marks
  const auto flush = [&](std::size_t end) {
    if (end > marks) words.emplace_back(text.substr(marks, end - marks));
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = number_or_name_at(text.substr(i));
    if (length == 0) {
      ++i;
      continue;
    }
    flush(i);
    words.emplace_back(text.substr(i, length));
    marks = i += length;
  }
  flush(text.size());
}

void cut_characters(View text, std::vector<std::u32string>& words) {
  for (const char32_t c : text) words.emplace_back(1, c);
}

/// Returns for each character the end of the word that begins there on the most probable path.
std::vector<std::size_t> best_ends(View text, const Dictionary& dictionary) {
  std::vector<std::size_t> ends(text.size());
  std::vector<double> scores(text.size() + 1, 0.0);
  std::vector<Dictionary::Match> matches;
  for (std::size_t i = text.size(); i-- > 0;) {
    dictionary.matches(text.substr(i), matches);
    for (const auto& match : matches) {
      const double score = match.log_probability + scores[i + match.length];
      if (ends[i] > i && score < scores[i]) continue;  // on a tie the longer word wins, as in jieba
      scores[i] = score;
      ends[i] = i + match.length;
    }
  }
  return ends;
}

}  // namespace

WordCutter::WordCutter() {
  std::error_code error;
  const fs::path share = program_folder().parent_path() / "share/qft/jieba";
  const char* asked = std::getenv("JIEBA_DICT");
  named_ = asked != nullptr && *asked != '\0';
  const fs::path file = named_ ? fs::path(asked) : share / kDictionary;
  if (fs::is_regular_file(file, error))
    dictionary_file_ = file;
  else if (named_)
    fail_config("JIEBA_DICT names '{}', which is not a file: name a dictionary in jieba's format, or unset it", asked);
  else
    return;
  model_folder_ = file.parent_path() / kModelFolder;
  if (!fs::is_directory(model_folder_, error)) model_folder_ = share / kModelFolder;
  if (!fs::is_directory(model_folder_, error))
    fail_config("neither '{}' nor '{}' exists: a dictionary needs the folder {} of the Python package jieba beside it",
                (file.parent_path() / kModelFolder).string(), model_folder_.string(), kModelFolder);
}

WordCutter::~WordCutter() = default;

void WordCutter::load() {
  dictionary_ = std::make_unique<Dictionary>(Dictionary::read(dictionary_file_));
  model_ = std::make_unique<HiddenMarkov>(HiddenMarkov::read(model_folder_));
  loaded_ = true;
}

std::vector<std::u32string> WordCutter::cut(View text) {
  const bool han = std::ranges::any_of(text, is_han);
  if (has_files() && !loaded_ && (han || named_)) load();
  if (!dictionary_) dictionary_ = std::make_unique<Dictionary>(Dictionary::latin());
  if (han && !has_files()) lacked_dictionary_ = true;
  std::vector<std::u32string> words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = run_end(text, i, in_block);
    if (end > i) {
      cut_block(text.substr(i, end - i), words);
    } else {
      end = i + (text.substr(i).starts_with(U"\r\n") ? 2 : 1);
      words.emplace_back(text.substr(i, end - i));
    }
    i = end;
  }
  return words;
}

void WordCutter::cut_block(View text, std::vector<std::u32string>& words) const {
  const std::vector<std::size_t> ends = best_ends(text, *dictionary_);
  std::size_t singles = 0;  // start of the current run of one-character words
  for (std::size_t i = 0; i < text.size(); i = ends[i]) {
    if (ends[i] == i + 1) continue;
    cut_unknown(text.substr(singles, i - singles), words);
    words.emplace_back(text.substr(i, ends[i] - i));
    singles = ends[i];
  }
  cut_unknown(text.substr(singles), words);
}

/// Cuts characters that the dictionary does not join to longer words.
void WordCutter::cut_unknown(View text, std::vector<std::u32string>& words) const {
  if (text.size() < 2 || dictionary_->contains(text)) return cut_characters(text, words);
  for (std::size_t i = 0; i < text.size();) {
    const bool han = is_han(text[i]);
    const std::size_t end = run_end(text, i, han ? is_han : [](char32_t c) { return !is_han(c); });
    const View run = text.substr(i, end - i);
    if (!han)
      cut_latin(run, words);
    else if (model_)
      model_->cut(run, words);
    else
      cut_characters(run, words);
    i = end;
  }
}

}  // namespace qft::eval
