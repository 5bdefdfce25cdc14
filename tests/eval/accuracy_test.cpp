// Token accuracy: the mean over sequences of each sequence's share, as in LLaMA-Factory's ComputeAccuracy.
#include "eval/accuracy.h"

#include <utility>
#include <vector>

#include "engine/token_losses.h"
#include "support/vocabulary_parts.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace qft::eval {
namespace {

/// Sequences of 4, 3, 2 and 5 tokens; the third has no label.
model::MicroInput input() {
  const std::vector<std::int32_t> tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, bounds = {0, 4, 7, 9, 14};
  return model::MicroInput::build(tokens, bounds, std::vector<std::int32_t>{1, 2, 3, 6, 11, 12}, {}, at::kCPU);
}

at::Tensor observed(const AccuracyObjective& objective, const model::MicroInput& in, const at::Tensor& x, const at::Tensor& table,
                    const ops::VocabularyPart& part = {}) {
  const at::Tensor logprobs = at::empty({in.labels.size()}, at::kDouble);
  const at::Tensor rows = at::empty({objective.row_values(), in.labels.size()}, at::kDouble);
  ops::Workspace workspace((c10::Device(c10::kCPU)));
  const auto read = [&](const ops::HeadChunk& chunk) {
    return objective.read_rows(in, chunk, rows.narrow(1, chunk.first, chunk.size()), {});
  };
  ops::head_forward(x, table, in.labels, logprobs, workspace, 2, {read}, part);
  return objective.observe(in, {logprobs, {}, rows}, {});
}

TEST(Accuracy, IsTheMeanOfTheSequencesShares) {
  const auto in = input();
  // Row r predicts token r + 1: with the identity as table, x selects the likeliest token.
  at::Tensor x = at::empty({14, 14}, at::kDouble).zero_(), table = at::empty({14, 14}, at::kDouble).zero_();
  for (std::int64_t t = 0; t < 14; ++t) table[t][t] = 1.0;
  const std::vector<bool> right = {true, false, true, true, false, true};  // per label
  const std::vector<std::int64_t> labels = {1, 2, 3, 6, 11, 12};
  for (std::size_t l = 0; l < labels.size(); ++l) x[labels[l] - 1][right[l] ? labels[l] : 0] = 5.0;
  const AccuracyObjective objective(std::make_unique<parallel::TokenMeanLoss>(parallel::BatchTotals{6, 4, 14}));
  ASSERT_EQ(objective.metrics().size(), 1U);
  EXPECT_EQ(objective.metrics()[0], "accuracy");
  const at::Tensor sums = observed(objective, in, x, table);
  EXPECT_DOUBLE_EQ(sums[1].item<double>(), 2.0 / 3 + 1.0 + 1.0 / 2);
  EXPECT_EQ(sums[2].item<double>(), 3.0);  // the sequence without labels does not count
}

/// The likeliest token and the label may lie in different parts; of equal tokens in two parts the lowest counts.
TEST(Accuracy, IsTheSameOnPartsOfTheVocabulary) {
  const auto in = input();
  const AccuracyObjective objective(std::make_unique<parallel::TokenMeanLoss>(parallel::BatchTotals{6, 4, 14}));
  // Small whole numbers, so that equal rows of the table have equal logits in any product.
  const at::Tensor random = at::randint(-2, 3, {14, 8}, at::kDouble), table = at::randint(-3, 4, {53, 8}, at::kDouble);
  at::Tensor likely = random.clone(), equal = table.clone();
  for (const std::int64_t label : {1, 2, 6, 12}) likely[label - 1] = table[label] * 8;
  equal[41] = table[1], equal[0] = table[12];  // a token after its equal label, and one before
  for (const auto& [x, rows] : {std::pair{random, table}, {likely, table}, {likely, equal}}) {
    const at::Tensor whole = observed(objective, in, x, rows);
    for (const std::vector<std::int64_t>& bounds : {test::even_bounds(53, 2), test::even_bounds(53, 4), {0, 1, 2, 53}})
      test::on_parts(bounds, [&, &x = x, &rows = rows](const ops::VocabularyPart& part, const test::Tokens& own) {
        const at::Tensor sums = observed(objective, in, x, own.of(rows), part);
        EXPECT_TRUE(sums.narrow(0, 1, 2).equal(whole.narrow(0, 1, 2))) << "part " << part.part;
        EXPECT_NEAR(sums[0].item<double>(), whole[0].item<double>(), 1e-12);
      });
  }
}

TEST(Accuracy, StandsBehindWhatTheObjectiveKeepsOfItsRows) {
  const auto in = input();
  const at::Tensor x = at::randn({14, 8}, at::kDouble), table = at::randn({20, 8}, at::kDouble);
  const parallel::BatchTotals totals{6, 4, 14};
  const auto eaft = [&] {
    return std::make_unique<engine::WeightedTokenLoss>(engine::token_loss("eaft"), engine::TokenLossOptions{}, totals);
  };
  const AccuracyObjective both(eaft()), alone(std::make_unique<parallel::TokenMeanLoss>(totals));
  const at::Tensor sums = observed(both, in, x, table), accuracy = observed(alone, in, x, table);
  ASSERT_EQ(both.metrics().size(), 3U);
  EXPECT_TRUE(sums.narrow(0, 5, 2).equal(accuracy.narrow(0, 1, 2)));
  EXPECT_DOUBLE_EQ(sums[1].item<double>(), accuracy[0].item<double>());  // token/nll
}

}  // namespace
}  // namespace qft::eval
