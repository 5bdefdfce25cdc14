#include "qft/eval/word_cutter.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/program.h"
#include "qft/io/file.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "dictionary.h"
#include "words.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

namespace fs = std::filesystem;
using View = std::u32string_view;

/// jieba's range of Chinese characters.
constexpr bool is_han(char32_t c) {
  return c >= 0x4E00 && c <= 0x9FD5;
}

constexpr char32_t kFirstHan = 0x4E00, kLastHan = 0x9FD5;
static_assert(is_han(kFirstHan) && is_han(kLastHan) && !is_han(kFirstHan - 1) && !is_han(kLastHan + 1));

constexpr double kNever = -3.14e100;  ///< jieba's value for log(0)
constexpr const char* kNames[] = {"B", "E", "M", "S"};

/// Parses the dict in one of jieba's Python files: with the quotes replaced it is JSON.
nlohmann::json read_table(const std::filesystem::path& file) {
  std::string text = io::read_text_file(file);
  text.erase(0, std::min(text.find('{'), text.size()));
  std::ranges::replace(text, '\'', '"');
  return parse_json(text, file.string());
}

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

/// jieba's model for words outside the dictionary: each character begins a word, is inside one, ends one or is a word. The most
/// probable sequence of these states (Viterbi 1967) cuts the text.
class HiddenMarkov {
 public:
  /// Reads prob_start.py, prob_trans.py and prob_emit.py in `folder`: natural logarithms, as in jieba's finalseg. Throws Error.
  static HiddenMarkov read(const fs::path& folder);

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

HiddenMarkov HiddenMarkov::read(const fs::path& folder) {
  HiddenMarkov model;
  model.emission_.resize(kLastHan - kFirstHan + 1);
  for (Row& row : model.emission_) row.fill(kNever);
  for (Row& row : model.transition_) row.fill(kNever);
  try {
    const auto start = read_table(folder / "prob_start.py"), transition = read_table(folder / "prob_trans.py"),
               emission = read_table(folder / "prob_emit.py");
    for (std::size_t s = 0; s < kStates; ++s) {
      model.start_[s] = start.at(kNames[s]).get<double>();
      for (std::size_t to = 0; to < kStates; ++to) model.transition_[s][to] = transition.at(kNames[s]).value(kNames[to], kNever);
      for (const auto& [character, value] : emission.at(kNames[s]).items())
        if (const auto c = code_points(character); c.size() == 1 && is_han(c[0]))
          model.emission_[c[0] - kFirstHan][s] = value.get<double>();
    }
  } catch (const nlohmann::json::exception& e) {
    fail("'{}' does not contain jieba's tables for the states B, E, M and S: {}", folder.string(), e.what());
  }
  return model;
}

std::vector<HiddenMarkov::State> HiddenMarkov::states_of(std::u32string_view text) const {
  constexpr State kBefore[kStates][2] = {{end, single}, {begin, middle}, {begin, middle}, {end, single}};
  std::vector<std::array<State, kStates>> from(text.size());
  Row row{};
  for (std::size_t s = 0; s < kStates; ++s) row[s] = start_[s] + emission_[text[0] - kFirstHan][s];
  for (std::size_t i = 1; i < text.size(); ++i) {
    const Row& emission = emission_[text[i] - kFirstHan];
    const Row before = row;
    for (std::size_t s = 0; s < kStates; ++s) {
      const auto [a, b] = kBefore[s];
      const double by_a = before[a] + transition_[a][s] + emission[s], by_b = before[b] + transition_[b][s] + emission[s];
      from[i][s] = by_b >= by_a ? b : a;
      row[s] = std::max(by_a, by_b);
    }
  }
  std::vector<State> states(text.size());
  State last = row[single] >= row[end] ? single : end;
  for (std::size_t i = text.size(); i-- > 0;) {
    states[i] = last;
    last = from[i][last];
  }
  return states;
}

void HiddenMarkov::cut(std::u32string_view text, std::vector<std::u32string>& words) const {
  const std::vector<State> states = states_of(text);
  std::size_t first = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (states[i] == begin || states[i] == single) first = i;
    if (states[i] == end || states[i] == single) words.emplace_back(text.substr(first, i + 1 - first));
  }
}

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
