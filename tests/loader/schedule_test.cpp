#include "qft/loader/schedule.h"

#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "io/temp_dir.h"
#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using test::alpaca_like_lengths;

struct Data {
  std::vector<std::int32_t> tokens, labels;
  explicit Data(std::size_t count) : tokens(alpaca_like_lengths(count, 500)), labels(tokens) {
    for (auto& l : labels) l /= 2;
  }
  StepSchedule schedule(const LoaderOptions& options, int world) const { return {tokens, labels, options, world}; }
};

std::vector<std::int64_t> sorted_items(const StepPlan& plan) {
  std::vector<std::int64_t> items;
  for (const auto& micro : plan.micro_batches) items.insert(items.end(), micro.begin(), micro.end());
  std::sort(items.begin(), items.end());
  return items;
}

TEST(StepSchedule, AStepHoldsTheSameSamplesForEveryNumberOfRanks) {
  const Data data(103);
  for (const bool packing : {false, true}) {
    LoaderOptions options;
    options.global_batch_size = packing ? 4 : 16;
    options.micro_batch_size = 2;
    options.packing = packing;
    options.row_tokens = 700;
    const StepSchedule single = data.schedule(options, 1);
    for (int world = 1; world <= 8; ++world) {
      const StepSchedule schedule = data.schedule(options, world);
      ASSERT_EQ(schedule.total_steps(), single.total_steps());
      for (std::int64_t step = 0; step < single.total_steps(); ++step) {
        const StepPlan a = single.plan(step), b = schedule.plan(step);
        EXPECT_EQ(sorted_items(a), sorted_items(b));
        EXPECT_EQ(a.epoch, b.epoch);
        EXPECT_EQ(std::tuple(a.tokens, a.label_tokens, a.samples), std::tuple(b.tokens, b.label_tokens, b.samples));
        EXPECT_EQ(static_cast<std::int64_t>(b.micro_batches.size()), b.max_micro_batches * world);
      }
    }
  }
}

/// Returns a step's micro-batches, rank by rank.
std::vector<std::vector<std::int64_t>> in_order(const StepPlan& plan, int world) {
  std::vector<std::vector<std::int64_t>> all;
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_EQ(plan.micro_batches_before(rank, world), static_cast<std::int64_t>(all.size()));
    for (std::int64_t round = 0; round < plan.max_micro_batches; ++round)
      if (const auto& micro = plan.micro_batches[static_cast<std::size_t>(round * world + rank)]; !micro.empty())
        all.push_back(micro);
  }
  return all;
}

TEST(StepSchedule, FixedMicroBatchesAreTheSameForEveryNumberOfRanksAndShareTheWork) {
  const Data data(103);
  for (const bool packing : {false, true}) {
    LoaderOptions options;
    options.global_batch_size = packing ? 7 : 22;
    options.micro_batch_size = packing ? 1 : 2;
    options.packing = packing;
    options.row_tokens = 700;
    options.fixed_micro_batches = true;
    const StepSchedule single = data.schedule(options, 1);
    for (int world = 1; world <= 8; ++world) {
      const StepSchedule schedule = data.schedule(options, world);
      for (std::int64_t step = 0; step < single.total_steps(); ++step) {
        const StepPlan plan = schedule.plan(step);
        const auto micros = in_order(plan, world);
        EXPECT_EQ(micros, in_order(single.plan(step), 1));
        EXPECT_EQ(plan.max_micro_batches, (static_cast<std::int64_t>(micros.size()) + world - 1) / world);
      }
    }
  }
}

TEST(DealRuns, EveryRunHoldsHeavyAndLightMicroBatches) {
  std::vector<std::vector<std::int32_t>> micros;
  for (std::int32_t i = 0; i < 8; ++i) micros.push_back({i});  // heavy ones first
  const auto two = distribute_runs(micros, 2);
  EXPECT_EQ(two, (std::vector<std::vector<std::int32_t>>{{0}, {1}, {4}, {5}, {2}, {3}, {6}, {7}}));
  micros.resize(3);
  const auto four = distribute_runs(micros, 4);  // one rank has none
  EXPECT_EQ(four, (std::vector<std::vector<std::int32_t>>{{}, {0}, {2}, {1}}));
  EXPECT_TRUE(distribute_runs({}, 3).empty());
}

TEST(StepSchedule, EverySampleOnceAnEpochInAnotherOrder) {
  const Data data(50);
  LoaderOptions options;
  options.global_batch_size = 8;
  const StepSchedule schedule = data.schedule(options, 3);
  EXPECT_EQ(schedule.steps_per_epoch(), 7);
  std::vector<std::vector<std::int64_t>> first_steps;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::multiset<std::int64_t> seen;
    for (int k = 0; k < 7; ++k) {
      const auto items = sorted_items(schedule.plan(epoch * 7 + k));
      EXPECT_EQ(items.size(), k < 6 ? 8u : 2u);
      seen.insert(items.begin(), items.end());
      if (k == 0) first_steps.push_back(items);
    }
    EXPECT_EQ(seen.size(), 50u);
    EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 50u);
  }
  EXPECT_NE(first_steps[0], first_steps[1]);
  EXPECT_NE(first_steps[1], first_steps[2]);
}

TEST(StepSchedule, RefusesMoreStepsThanARunCanHave) {
  const Data data(50);
  LoaderOptions options;
  options.global_batch_size = 5;
  options.num_epochs = 1e8;
  EXPECT_EQ(data.schedule(options, 1).total_steps(), 1'000'000'000);
  options.num_epochs = 2e8;
  EXPECT_THROW(data.schedule(options, 1), ConfigError);
}

struct HfCase {
  std::int64_t items, micro, accumulation;
  int world;
  double epochs;
  std::int64_t max_steps;
  bool drop_last;
  std::int64_t steps_per_epoch, total;
  double first_epoch;
};

// Numbers of transformers 5's Trainer: len(dataloader) micro-batches, ceil over accumulation, ceil(epochs * steps).
TEST(StepSchedule, CountsStepsAndEpochsAsTheHfTrainer) {
  const HfCase cases[] = {
      {10, 1, 4, 1, 1.0, 0, false, 3, 3, 0.4},      // 10 batches: steps after 4, 8 and 10
      {10, 2, 4, 1, 3.0, 0, false, 2, 6, 0.8},      // 5 batches
      {10, 2, 1, 2, 3.0, 0, false, 3, 9, 1.0 / 3},  // 3 batches of 4
      {10, 2, 1, 2, 3.0, 0, true, 2, 6, 0.5},       // the third, of 2, is dropped
      {10, 1, 4, 2, 1.5, 0, false, 2, 3, 0.8},      // 5 batches of 2
      {1000, 8, 2, 4, 2.5, 0, false, 16, 40, 2.0 / 32}, {1000, 8, 2, 4, 2.5, 7, false, 16, 7, 2.0 / 32},
      {3, 8, 4, 1, 2.0, 0, false, 1, 2, 1.0},
  };
  for (const HfCase& c : cases) {
    const Data data(static_cast<std::size_t>(c.items));
    LoaderOptions options;
    options.micro_batch_size = c.micro;
    options.gradient_accumulation_steps = c.accumulation;
    options.num_epochs = c.epochs;
    options.max_steps = c.max_steps;
    options.drop_last = c.drop_last;
    const StepSchedule schedule = data.schedule(options, c.world);
    EXPECT_EQ(schedule.steps_per_epoch(), c.steps_per_epoch);
    EXPECT_EQ(schedule.total_steps(), c.total);
    EXPECT_DOUBLE_EQ(schedule.plan(0).epoch, c.first_epoch);
    EXPECT_DOUBLE_EQ(schedule.plan(c.steps_per_epoch - 1).epoch, 1.0);
  }
}

TEST(StepSchedule, WithoutShufflingStepsFollowTheSource) {
  const Data data(10);
  LoaderOptions options;
  options.shuffle = false;
  options.global_batch_size = 4;
  const StepSchedule schedule = data.schedule(options, 2);
  EXPECT_EQ(sorted_items(schedule.plan(0)), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(sorted_items(schedule.plan(2)), (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(sorted_items(schedule.plan(3)), (std::vector<std::int64_t>{0, 1, 2, 3}));
}

TEST(StepSchedule, ASubsetIsAllThatIsSeen) {
  const Data data(40);
  const auto [train, validation] = split_items(40, 0.25, 7);
  EXPECT_EQ(train->size(), 30u);
  // The items that datasets' train_test_split(test_size=0.25, seed=7) holds out of 40.
  EXPECT_EQ(*validation, (std::vector<std::int64_t>{0, 4, 9, 10, 12, 19, 20, 28, 30, 32}));
  std::set<std::int64_t> all(train->begin(), train->end());
  all.insert(validation->begin(), validation->end());
  EXPECT_EQ(all.size(), 40u);
  EXPECT_TRUE(std::is_sorted(train->begin(), train->end()));
  EXPECT_EQ(*split_items(40, 0.25, 7).second, *validation);
  EXPECT_NE(*split_items(40, 0.25, 8).second, *validation);
  EXPECT_EQ(split_items(40, 5, 7).second->size(), 5u);
  for (const bool packing : {false, true}) {
    LoaderOptions options;
    options.items = train;
    options.global_batch_size = packing ? 2 : 10;
    options.packing = packing;
    options.row_tokens = 500;
    const StepSchedule schedule = data.schedule(options, 1);
    std::vector<std::int64_t> seen;
    for (std::int64_t step = 0; step < schedule.steps_per_epoch(); ++step)
      for (const std::int64_t item : sorted_items(schedule.plan(step))) seen.push_back(item);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, *train);
  }
  EXPECT_THROW(split_items(10, 10, 1), ConfigError);
  EXPECT_THROW(split_items(10, 0, 1), ConfigError);
}

TEST(DealUnits, BalancesTokensOverRanksAndRounds) {
  const auto lengths = alpaca_like_lengths(512, 2000);
  const std::vector<std::int64_t> tokens(lengths.begin(), lengths.end());
  const auto bins = distribute_units(tokens, 8, 8, 0);
  ASSERT_EQ(bins.size(), 64u);
  std::vector<std::int64_t> loads;
  for (const auto& bin : bins) {
    EXPECT_EQ(bin.size(), 8u);
    loads.push_back(0);
    for (const std::int32_t unit : bin) loads.back() += tokens[static_cast<std::size_t>(unit)];
  }
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  EXPECT_LT(static_cast<double>(*most) / static_cast<double>(*least), 1.5);  // random distribution gives more than 2
}

TEST(DealUnits, LeavesRanksEmptyWhereThereAreFewUnits) {
  const std::vector<std::int64_t> tokens = {5, 9};
  const auto bins = distribute_units(tokens, 4, 2, 0);
  EXPECT_EQ(bins, (std::vector<std::vector<std::int32_t>>{{1}, {0}, {}, {}}));
}

TEST(DealUnits, ATokenLimitMakesMoreAndSmallerMicroBatches) {
  const std::vector<std::int64_t> tokens = {60, 50, 50, 40, 40, 30, 300};
  const auto bins = distribute_units(tokens, 1, 4, 100);
  for (const auto& bin : bins) {
    std::int64_t load = 0;
    for (const std::int32_t unit : bin) load += tokens[static_cast<std::size_t>(unit)];
    EXPECT_TRUE(load <= 100 || bin.size() == 1) << load;
  }
  EXPECT_EQ(bins.size(), 4u);
}

TEST(TakeTurns, MovesOnWithTheStepAndBackwardsInEveryOtherRound) {
  const std::vector<std::vector<std::int32_t>> bins = {{0}, {1}, {2}, {3}, {4}, {}};
  EXPECT_EQ(rotate_ranks(bins, 3, 0), (std::vector<std::vector<std::int32_t>>{{0}, {1}, {2}, {}, {4}, {3}}));
  EXPECT_EQ(rotate_ranks(bins, 3, 4), (std::vector<std::vector<std::int32_t>>{{2}, {0}, {1}, {3}, {}, {4}}));
  EXPECT_EQ(rotate_ranks(bins, 1, 4), bins);
}

TEST(StepSchedule, RanksHaveTheSameToDoOverAFewSteps) {
  const Data data(400);
  for (const int world : {2, 4, 5}) {
    for (const std::int64_t batch : {1, 4, 12}) {
      LoaderOptions options;
      options.global_batch_size = batch;
      const StepSchedule schedule = data.schedule(options, world);
      std::vector<double> tokens(static_cast<std::size_t>(world));
      for (std::int64_t step = 0; step < 400 / batch; ++step) {
        const StepPlan plan = schedule.plan(step);
        for (std::size_t b = 0; b < plan.micro_batches.size(); ++b)
          for (const std::int64_t item : plan.micro_batches[b])
            tokens[b % tokens.size()] += data.tokens[static_cast<std::size_t>(item)];
      }
      const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
      EXPECT_LT(*most / *least, 1.4) << world << " ranks, " << batch << " samples a step";
    }
  }
}

TEST(StepSchedule, TheRunFileLimitsTheTokensOfAMicroBatch) {
  const Data data(64);
  config::RunConfig config;
  config.training.max_tokens_per_micro_batch = 400;  // below the longest sample, which stays alone
  ASSERT_GT(*std::max_element(data.tokens.begin(), data.tokens.end()), 400);
  const StepPlan plan = data.schedule(loader_options(config), 2).plan(0);
  EXPECT_EQ(plan.samples, 16);
  EXPECT_GT(plan.max_micro_batches, 1);
  for (const auto& micro : plan.micro_batches) {
    std::int64_t tokens = 0;
    for (const std::int64_t item : micro) tokens += data.tokens[static_cast<std::size_t>(item)];
    EXPECT_TRUE(tokens <= 400 || micro.size() == 1) << tokens;
  }
}

TEST(StepSchedule, RefusesOptionsThatMakeNoStep) {
  const Data data(10);
  const auto refused = [&](auto change) {
    LoaderOptions options;
    change(options);
    EXPECT_THROW(data.schedule(options, 2), ConfigError);
  };
  refused([](LoaderOptions& o) { o.micro_batch_size = 0; });
  refused([](LoaderOptions& o) { o.gradient_accumulation_steps = -1; });
  refused([](LoaderOptions& o) { o.num_epochs = 0; });
  refused([](LoaderOptions& o) { o.global_batch_size = -4; });
  refused([](LoaderOptions& o) { o.micro_batch_size = 8, o.drop_last = true; });
  refused([](LoaderOptions& o) { o.packing = true, o.row_tokens = 20; });
}

}  // namespace
}  // namespace qft::loader
