#include "qft/eval/text_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <unordered_map>
#include <unordered_set>

#include "words.h"
#include <fmt/format.h>

namespace qft::eval {
namespace {

constexpr std::size_t kBleuOrder = 4;

using Counts = std::unordered_map<std::u32string_view, std::int64_t>;

Counts ngrams(std::u32string_view text, std::size_t n) {
  Counts counts;
  for (std::size_t i = 0; i + n <= text.size(); ++i) ++counts[text.substr(i, n)];
  return counts;
}

/// Counts n-grams of the prediction that the label also has, each at most as often as in the label.
std::int64_t matches(std::u32string_view prediction, std::u32string_view label, std::size_t n) {
  const Counts expected = ngrams(label, n);
  std::int64_t sum = 0;
  for (const auto& [ngram, count] : ngrams(prediction, n))
    if (const auto found = expected.find(ngram); found != expected.end()) sum += std::min(count, found->second);
  return sum;
}

/// rouge-chinese's F1, which adds a small number to avoid 0 / 0.
double f1(double overlap, double predicted, double expected) {
  const double precision = predicted > 0 ? overlap / predicted : 0.0, recall = expected > 0 ? overlap / expected : 0.0;
  return 2.0 * (precision * recall) / (precision + recall + 1e-8);
}

using Words = std::vector<std::uint32_t>;  ///< word numbers; equal words have equal numbers

double rouge_n(const Words& prediction, const Words& label, std::size_t n) {
  const auto set_of = [n](const Words& words) {
    std::unordered_set<std::uint64_t> set;
    for (std::size_t i = 0; i + n <= words.size(); ++i)
      set.insert(n == 1 ? words[i] : std::uint64_t{words[i]} << 32 | words[i + 1]);
    return set;
  };
  const auto predicted = set_of(prediction), expected = set_of(label);
  const auto overlap = std::ranges::count_if(predicted, [&](std::uint64_t ngram) { return expected.contains(ngram); });
  return f1(static_cast<double>(overlap), static_cast<double>(predicted.size()), static_cast<double>(expected.size()));
}

double rouge_l(const Words& prediction, const Words& label) {
  std::vector<std::int64_t> above(label.size() + 1, 0), row(label.size() + 1, 0);
  for (const std::uint32_t word : prediction) {
    for (std::size_t j = 1; j <= label.size(); ++j)
      row[j] = word == label[j - 1] ? above[j - 1] + 1 : std::max(above[j], row[j - 1]);
    std::swap(above, row);
  }
  return f1(static_cast<double>(above.back()), static_cast<double>(prediction.size()), static_cast<double>(label.size()));
}

bool all_space(const std::vector<std::u32string>& words) {
  return std::ranges::all_of(words, [](const auto& word) { return std::ranges::all_of(word, is_space); });
}

/// Like Python's round(100 x, 4): the decimal nearest to the binary number.
double percent(double share) {
  return std::strtod(fmt::format("{:.4f}", share * 100).c_str(), nullptr);
}

}  // namespace

double bleu_4(std::u32string_view prediction, std::u32string_view label) {
  double logarithms = 0.0, missing = 1.0;
  for (std::size_t n = 1; n <= kBleuOrder; ++n) {
    const std::int64_t found = matches(prediction, label, n);
    if (n == 1 && found == 0) return 0.0;
    const auto all = static_cast<double>(prediction.size() >= n ? prediction.size() - n + 1 : 1);
    if (found == 0) missing *= 2.0;
    logarithms += std::log((found == 0 ? 1.0 / missing : static_cast<double>(found)) / all) / static_cast<double>(kBleuOrder);
  }
  const auto predicted = static_cast<double>(prediction.size()), expected = static_cast<double>(label.size());
  const double brevity = predicted > expected ? 1.0 : std::exp(1.0 - expected / predicted);
  return brevity * std::exp(logarithms);
}

Rouge rouge(std::u32string_view prediction, std::u32string_view label, WordCutter& cutter) {
  const auto predicted = cutter.cut(prediction), expected = cutter.cut(label);
  if (all_space(predicted) || all_space(expected)) return {};
  std::unordered_map<std::u32string, std::uint32_t> numbers;
  const auto number = [&](const std::vector<std::u32string>& words) {
    Words out;
    for (auto& word : sentence_words(words))
      out.push_back(numbers.try_emplace(std::move(word), static_cast<std::uint32_t>(numbers.size())).first->second);
    return out;
  };
  const Words ours = number(predicted), theirs = number(expected);
  return {rouge_n(ours, theirs, 1), rouge_n(ours, theirs, 2), rouge_l(ours, theirs)};
}

TextScores score(std::string_view prediction, std::string_view label, WordCutter& cutter) {
  const std::u32string ours = code_points(prediction), theirs = code_points(label);
  const Rouge r = rouge(ours, theirs, cutter);
  return {percent(bleu_4(ours, theirs)), percent(r.rouge_1), percent(r.rouge_2), percent(r.rouge_l)};
}

}  // namespace qft::eval
