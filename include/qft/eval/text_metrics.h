// How alike a generated text and the expected one are: BLEU-4 and ROUGE-1, -2 and -L as LLaMA-Factory computes them
// (nltk's sentence_bleu over characters with smoothing method 3, rouge-chinese over the words of jieba).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qft::eval {

/// Words as jieba cuts text outside its dictionary of Chinese words: letters and digits run together, with a decimal
/// fraction and a percent sign; a run of other marks of + # & . _ % - is a word; so are AT&T, C#, c#, C++ and c++; every
/// other character is a word of its own, white space included. Here each Han character is one as well: jieba would join
/// those that its dictionary or its model of unknown words joins.
std::vector<std::u32string> cut_words(std::u32string_view text);

/// BLEU-4 of characters, equal weights (Papineni et al. 2002). An order without a match counts as 1 / (2^k times its number
/// of n-grams), k = 1, 2, ... for the first, second, ... such order (NIST's smoothing; Chen and Cherry 2014, method 3). 0
/// where no character matches.
double bleu_4(std::u32string_view prediction, std::u32string_view label);

/// F1 of sets of word n-grams, and of the longest common subsequence of words (Lin 2004).
struct Rouge {
  double rouge_1 = 0.0, rouge_2 = 0.0, rouge_l = 0.0;
};
/// 0 where one of the texts has no words. As in rouge-chinese, a blank line is an empty word.
Rouge rouge(std::u32string_view prediction, std::u32string_view label);

/// Percent, rounded to four decimals.
struct TextScores {
  double bleu_4 = 0.0, rouge_1 = 0.0, rouge_2 = 0.0, rouge_l = 0.0;
};
/// Of two texts in UTF-8; bytes that are none count as U+FFFD.
TextScores score(std::string_view prediction, std::string_view label);

}  // namespace qft::eval
