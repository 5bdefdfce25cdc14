// Similarity of a generated text to the expected one: BLEU-4 and ROUGE-1, -2 and -L as LLaMA-Factory computes them
// (nltk's sentence_bleu over characters with smoothing method 3, rouge-chinese over jieba's words).
#pragma once

#include "qft/eval/word_cutter.h"

#include <string_view>

namespace qft::eval {

/// Returns BLEU-4 over characters with equal weights (Papineni et al. 2002). An order without a match counts as 1 / (2^k times
/// its number of n-grams), k = 1, 2, ... for the first, second, ... such order (NIST's smoothing; Chen and Cherry 2014, method
/// 3). Returns 0 if no character matches.
double bleu_4(std::u32string_view prediction, std::u32string_view label);

/// F1 over sets of word n-grams, and over the longest common subsequence of words (Lin 2004).
struct Rouge {
  double rouge_1 = 0.0, rouge_2 = 0.0, rouge_l = 0.0;
};
/// Returns 0 for all scores if one text has no words. As in rouge-chinese, a blank line is an empty word.
Rouge rouge(std::u32string_view prediction, std::u32string_view label, WordCutter& cutter);

/// Percent, rounded to four decimals.
struct TextScores {
  double bleu_4 = 0.0, rouge_1 = 0.0, rouge_2 = 0.0, rouge_l = 0.0;
};
/// The scores under LLaMA-Factory's names.
struct ScoreName {
  const char* name;
  double TextScores::* value;
};
inline constexpr ScoreName kScoreNames[] = {{"bleu-4", &TextScores::bleu_4},
                                            {"rouge-1", &TextScores::rouge_1},
                                            {"rouge-2", &TextScores::rouge_2},
                                            {"rouge-l", &TextScores::rouge_l}};

/// Scores two UTF-8 texts; invalid bytes count as U+FFFD.
TextScores score(std::string_view prediction, std::string_view label, WordCutter& cutter);

}  // namespace qft::eval
