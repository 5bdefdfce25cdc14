#include "qft/plan/workload.h"

#include <numeric>

#include <gtest/gtest.h>

namespace qft::plan {
namespace {

TEST(Workload, IsWhatTheLoaderDeals) {
  std::vector<std::int32_t> tokens, labels;
  for (int i = 0; i < 64; ++i) {
    tokens.push_back(10 + i);
    labels.push_back(i % 7 + 1);
  }
  loader::LoaderOptions options;
  options.micro_batch_size = 2;
  options.gradient_accumulation_steps = 3;
  options.num_epochs = 1;
  const loader::StepSchedule schedule(tokens, labels, options, 2);
  const Workload all = workload_of(schedule, tokens, labels, 100);
  ASSERT_EQ(static_cast<std::int64_t>(all.steps.size()), schedule.total_steps());
  std::int64_t sum = 0;
  for (const StepShape& step : all.steps) {
    sum += step.tokens;
    EXPECT_LE(static_cast<std::int64_t>(step.micros.size()), step.max_micro_batches);
    std::int64_t own = 0;
    for (const MicroShape& m : step.micros) own += m.tokens;
    EXPECT_GE(2 * own, step.tokens - 40);  // the rank with most of an even distribution
    for (const MicroShape& m : step.micros) EXPECT_LE(m.tokens, all.largest.tokens);
  }
  EXPECT_EQ(sum, std::accumulate(tokens.begin(), tokens.end(), 0));
  EXPECT_EQ(workload_of(schedule, tokens, labels, 2).steps.size(), 2U);
}

TEST(Workload, OfPairsHasTwoSequencesAnItem) {
  const std::vector<std::int32_t> tokens = {10, 21, 8}, labels = {4, 5, 2};
  loader::LoaderOptions options;
  options.micro_batch_size = 3;
  options.num_epochs = 1;
  const loader::StepSchedule schedule(tokens, labels, options, 1);
  const Workload all = workload_of(schedule, tokens, labels, 1, 2);
  const MicroShape& micro = all.steps.at(0).micros.at(0);
  EXPECT_EQ(micro.tokens, 39);
  EXPECT_EQ(micro.labels, 11);
  EXPECT_EQ(micro.sequences, 6);
  EXPECT_EQ(micro.pairs(), 2 * 15 + 55 + 66 + 2 * 10);
  EXPECT_EQ(all.largest.sequences, 6);
  EXPECT_EQ(all.largest.longest, 21) << "a pack does not record how an item is divided";
  EXPECT_EQ(all.largest.padded, 6 * 21);
}

TEST(Workload, OfItemsWithVaryingNumbersOfSequences) {
  const std::vector<std::int32_t> tokens = {10, 21, 8}, labels = {0, 0, 0}, counts = {1, 3, 2}, longest = {10, 9, 5};
  loader::LoaderOptions options;
  options.micro_batch_size = 3;
  options.num_epochs = 1;
  const loader::StepSchedule schedule(tokens, labels, options, 1);
  const Workload all = workload_of(schedule, tokens, labels, 1, 1, {}, {counts, longest});
  const MicroShape& micro = all.steps.at(0).micros.at(0);
  EXPECT_EQ(micro.tokens, 39);
  EXPECT_EQ(micro.sequences, 6);
  EXPECT_EQ(micro.pairs(), 55 + 3 * 28 + 2 * 10);
  EXPECT_EQ(all.largest.sequences, 6);
  EXPECT_EQ(all.largest.longest, 10) << "the longest sequence, not the longest item";
  EXPECT_EQ(all.largest.padded, 6 * 10);
}

TEST(Workload, WithoutAPackHasFullRows) {
  config::RunConfig config;
  config.data.cutoff_len = 100;
  config.training.per_device_train_batch_size = 4;
  config.training.gradient_accumulation_steps = 3;
  const Workload w = full_rows(config, 2);
  ASSERT_EQ(w.steps.size(), 1U);
  EXPECT_EQ(w.steps[0].max_micro_batches, 3);
  EXPECT_EQ(w.largest.tokens, 400);
  EXPECT_EQ(w.largest.longest, 100);
  EXPECT_EQ(w.largest.padded, 400);
  EXPECT_EQ(w.largest.pairs(), 4 * 5050);
  EXPECT_EQ(w.steps[0].tokens, 2400);
  config.training.max_tokens_per_micro_batch = 200;  // two rows at a time, twice as often
  EXPECT_EQ(full_rows(config, 2).steps[0].max_micro_batches, 6);
  EXPECT_EQ(full_rows(config, 2).largest.tokens, 200);
  config.training.max_tokens_per_micro_batch = 0;
  config.training.global_batch_size = 5;  // three rows for one rank, two for the other
  EXPECT_EQ(full_rows(config, 2).largest.tokens, 300);
  EXPECT_EQ(full_rows(config, 2).steps[0].max_micro_batches, 1);
  config.training.deterministic = true;  // one rank has all rows
  EXPECT_EQ(full_rows(config, 2).largest.tokens, 400);
}

TEST(Workload, PadsMicroBatchesToGraphShapes) {
  config::RunConfig config;
  config.data.cutoff_len = 1000;
  config.training.per_device_train_batch_size = 1;
  const Workload plain = full_rows(config, 1), padded = padded_to_graph_shapes(plain);
  EXPECT_EQ(padded.largest.tokens, 1024);
  EXPECT_EQ(padded.largest.labels, plain.largest.labels);
  EXPECT_EQ(padded.largest.pairs(), 500500 + 24 * 25 / 2);
  EXPECT_EQ(padded.steps[0].micros[0].tokens, 1024);
  EXPECT_EQ(padded.steps[0].tokens, plain.steps[0].tokens) << "padding does not count as throughput";
  EXPECT_EQ(padded_to_graph_shapes(padded).largest.pairs(), padded.largest.pairs());
}

}  // namespace
}  // namespace qft::plan
