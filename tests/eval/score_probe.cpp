// Scores of texts, for comparison with other implementations: a JSON line {"predict", "label"} each on stdin, a line of
// bleu_4, rouge_1, rouge_2 and rouge_l each on stdout.
#include "qft/eval/text_metrics.h"

#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto json = nlohmann::json::parse(line);
    const auto s = qft::eval::score(json["predict"].get<std::string>(), json["label"].get<std::string>());
    std::cout << nlohmann::json{s.bleu_4, s.rouge_1, s.rouge_2, s.rouge_l}.dump() << "\n";
  }
}
