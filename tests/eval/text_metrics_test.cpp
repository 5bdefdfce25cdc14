#include "qft/eval/text_metrics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace qft::eval {
namespace {

TEST(Bleu, KnowsItsCornerCases) {
  EXPECT_DOUBLE_EQ(bleu_4(U"hello", U"hello"), 1.0);
  EXPECT_EQ(bleu_4(U"", U"hello"), 0.0);
  EXPECT_EQ(bleu_4(U"hello", U""), 0.0);
  EXPECT_EQ(bleu_4(U"xyz", U"hello"), 0.0);
  // "ab" against "ab": 2/2, 1/1, then 1/2 and 1/4 for the two orders that have no n-gram.
  EXPECT_NEAR(bleu_4(U"ab", U"ab"), std::pow(1.0 / 8, 0.25), 1e-12);
  // Shorter than the label: e^(1 - 5/4).
  EXPECT_NEAR(bleu_4(U"hell", U"hello"), std::exp(1 - 5.0 / 4), 1e-12);
}

TEST(Rouge, ComparesSetsOfWordsAndTheirOrder) {
  WordCutter cutter;
  const auto rouge = [&](std::u32string_view ours, std::u32string_view theirs) { return eval::rouge(ours, theirs, cutter); };
  const Rouge r = rouge(U"the cat sat", U"the cat ran off");
  EXPECT_NEAR(r.rouge_1, 2 * (2.0 / 3) * 0.5 / (2.0 / 3 + 0.5), 1e-7);
  EXPECT_NEAR(r.rouge_2, 2 * 0.5 * (1.0 / 3) / (0.5 + 1.0 / 3), 1e-7);
  EXPECT_NEAR(r.rouge_l, r.rouge_1, 1e-12);
  EXPECT_LT(rouge(U"b a", U"a b").rouge_l, rouge(U"a b", U"a b").rouge_l);
  const Rouge none = rouge(U" \n ", U"a");
  EXPECT_EQ(none.rouge_1 + none.rouge_2 + none.rouge_l, 0.0);
}

TEST(Score, IsPercentWithFourDecimals) {
  WordCutter cutter;
  const auto score = [&](std::string_view ours, std::string_view theirs) { return eval::score(ours, theirs, cutter); };
  const TextScores s = score("the cat sat", "the cat ran off");
  EXPECT_EQ(s.rouge_1, 57.1429);
  EXPECT_EQ(s.rouge_2, 40.0);
  EXPECT_EQ(score("same", "same").bleu_4, 100.0);
  EXPECT_NO_THROW(score("\xff\xfe a", "a"));
}

}  // namespace
}  // namespace qft::eval
