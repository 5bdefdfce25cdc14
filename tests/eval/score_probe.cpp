// Computes words and scores of texts, for comparison with other implementations. Reads one JSON line at a time from stdin and
// writes one to stdout: for a text its words; for {"predict", "label"} bleu_4, rouge_1, rouge_2 and rouge_l.
#include "qft/eval/text_metrics.h"

#include <iostream>
#include <string>

#include "eval/words.h"
#include <nlohmann/json.hpp>

namespace {

using nlohmann::json;

std::string utf8(const std::u32string& word) {
  std::string text;
  for (const char32_t c : word) {
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // bytes after the first
    constexpr unsigned kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kLead[more] | c >> (6 * more));
    for (int k = more; k-- > 0;) text += static_cast<char>(0x80U | (c >> (6 * k) & 0x3FU));
  }
  return text;
}

json words_of(const std::string& text, qft::eval::WordCutter& cutter) {
  json words = json::array();
  for (const auto& word : cutter.cut(qft::eval::code_points(text))) words.push_back(utf8(word));
  return words;
}

json scores_of(const json& pair, qft::eval::WordCutter& cutter) {
  const auto s = qft::eval::score(pair["predict"].get<std::string>(), pair["label"].get<std::string>(), cutter);
  json scores = json::array();
  for (const auto& [name, value] : qft::eval::kScoreNames) scores.push_back(s.*value);
  return scores;
}

}  // namespace

int main() {
  qft::eval::WordCutter cutter;
  for (std::string line; std::getline(std::cin, line);) {
    const json input = json::parse(line);
    std::cout << (input.is_string() ? words_of(input.get<std::string>(), cutter) : scores_of(input, cutter)).dump() << "\n";
  }
}
