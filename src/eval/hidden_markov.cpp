#include "hidden_markov.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/io/file.h"

#include <algorithm>
#include <cstdint>

#include "words.h"
#include <nlohmann/json.hpp>

namespace qft::eval {
namespace {

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

}  // namespace

HiddenMarkov HiddenMarkov::read(const std::filesystem::path& folder) {
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

}  // namespace qft::eval
