#include "train/step_work.h"

#include <gtest/gtest.h>

namespace qft::train {
namespace {

model::ModelSpec spec(std::vector<std::int64_t> windows = {}, model::Share share = {}, model::Share context = {}) {
  model::ModelConfig config;
  config.windows = std::move(windows);
  config.hidden_size = 8, config.intermediate_size = 16, config.num_layers = 3;
  config.num_heads = 2, config.num_kv_heads = 1, config.head_dim = 4, config.vocab_size = 100;
  return model::ModelSpec::build(config, model::Finetuning::full, {}, {}, model::Head::language_model, {}, share, context);
}

loader::StepBatch batch(std::initializer_list<std::int32_t> ends, std::size_t labels) {
  loader::StepBatch b;
  b.micro_batches.resize(1);
  loader::MicroBatch& micro = b.micro_batches[0];
  micro.cu_seqlens = {0};
  micro.cu_seqlens.insert(micro.cu_seqlens.end(), ends);
  micro.tokens.resize(static_cast<std::size_t>(micro.cu_seqlens.back()));
  micro.label_positions.resize(labels);
  return b;
}

TEST(StepWork, CountsMatricesAttentionAndHead) {
  const double matrices = 3 * (8 * (8 + 4 + 4) + 8 * 8 + 3 * 8 * 16), pair = 2 * 3 * 8, label = 8 * 100;
  EXPECT_EQ(step_work(spec(), batch({5}, 0)), 5 * matrices + 15 * pair);
  EXPECT_EQ(step_work(spec(), batch({2, 5}, 4)), 5 * matrices + (3 + 6) * pair + 4 * label);
}

TEST(StepWork, CountsTheRanksPartOfTheMatrices) {
  const double matrices = 3 * (8 * (4 + 4 + 4) + 4 * 8 + 3 * 8 * 8), pair = 2 * 3 * 4, label = 8 * 50;
  EXPECT_EQ(step_work(spec({}, {1, 2}), batch({2, 5}, 4)), 5 * matrices + (3 + 6) * pair + 4 * label);
}

TEST(StepWork, CountsTheRanksPartOfTheSequences) {
  const double alone = step_work(spec(), batch({2, 5}, 4));
  for (const int rank : {0, 1}) EXPECT_EQ(step_work(spec({}, {}, {rank, 2}), batch({2, 5}, 4)), alone / 2);
}

TEST(StepWork, CountsPairsWithinTheWindow) {
  EXPECT_EQ(step_work(spec({0, 2, 2}), batch({5}, 0)), step_work(spec(), batch({5}, 0)) - 2 * (15 - 9) * 2 * 8);
}

TEST(StepWork, OneLongSequenceIsMoreThanItsTokensInShortOnes) {
  EXPECT_GT(step_work(spec(), batch({1000}, 0)), 10 * step_work(spec(), batch({10}, 0)) * 10);
  EXPECT_EQ(step_work(spec(), {}), 0.0);
}

}  // namespace
}  // namespace qft::train
