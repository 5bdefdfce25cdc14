// Curriculum sampling: the shares of the table are reached, short levels repeat, and nothing depends on state.
#include "qft/core/error.h"
#include "qft/loader/schedule.h"

#include <map>
#include <numeric>
#include <set>

#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using nlohmann::json;

struct Levelled {
  std::vector<std::int32_t> tokens, labels;
  LoaderOptions options;

  // sizes[l] items of level l, shuffled together, and one item without a level.
  explicit Levelled(std::vector<std::int64_t> sizes) {
    options.curriculum = parse_curriculum(json());
    options.global_batch_size = 20;
    options.num_epochs = 4;
    for (bool left = true; left;) {
      left = false;
      for (std::size_t l = 0; l < sizes.size(); ++l)
        if (sizes[l]-- > 0) {
          options.item_levels.push_back(static_cast<std::int32_t>(l));
          left = true;
        }
    }
    options.item_levels.push_back(-1);
    tokens = test::alpaca_like_lengths(options.item_levels.size(), 300);
    labels.assign(tokens.size(), 1);
  }
  StepSchedule schedule(int world = 1) const { return {tokens, labels, options, world}; }
  std::vector<std::int64_t> items(const StepPlan& plan) const {
    std::vector<std::int64_t> all;
    for (const auto& micro : plan.micro_batches) all.insert(all.end(), micro.begin(), micro.end());
    return all;
  }
  std::vector<double> shares(const StepSchedule& schedule, std::size_t stage) const {
    std::vector<double> counts(3, 0);
    const auto [first, end] = schedule.curriculum()->steps_of(stage);
    for (std::int64_t step = first; step < end; ++step)
      for (const std::int64_t item : items(schedule.plan(step)))
        ++counts.at(static_cast<std::size_t>(options.item_levels[static_cast<std::size_t>(item)]));
    const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
    for (double& c : counts) c /= sum;
    return counts;
  }
};

TEST(Curriculum, TheSharesOfEveryStageAreReached) {
  const Levelled data({300, 150, 50});  // topology is short: it repeats
  const StepSchedule schedule = data.schedule();
  ASSERT_EQ(schedule.total_steps(), 100);
  const std::vector<std::vector<double>> asked = {{0.8, 0.2, 0}, {0.4, 0.4, 0.2}, {0.25, 0.35, 0.4}};
  const std::pair<std::int64_t, std::int64_t> steps[] = {{0, 30}, {30, 70}, {70, 100}};
  for (std::size_t stage = 0; stage < 3; ++stage) {
    EXPECT_EQ(schedule.curriculum()->steps_of(stage), steps[stage]);
    const std::vector<double> reached = data.shares(schedule, stage);
    for (std::size_t l = 0; l < 3; ++l) EXPECT_NEAR(reached[l], asked[stage][l], 1.01 / 600) << stage << " " << l;
  }
  EXPECT_NE(schedule.curriculum()->describe(2).find("topology 40.0 % (asked 40.0 %; 240 of 50, repeated)"), std::string::npos)
      << schedule.curriculum()->describe(2);
}

TEST(Curriculum, EachLevelIsUsedUpBeforeItRepeats) {
  const Levelled data({300, 150, 50});
  const StepSchedule schedule = data.schedule();
  std::map<std::int64_t, int> times;
  for (std::int64_t step = 0; step < 100; ++step)
    for (const std::int64_t item : data.items(schedule.plan(step))) ++times[item];
  std::map<std::int32_t, std::pair<int, int>> least_most;  // by level
  for (std::size_t i = 0; i + 1 < data.tokens.size(); ++i) {
    auto [it, fresh] = least_most.try_emplace(data.options.item_levels[i], 1 << 20, 0);
    it->second.first = std::min(it->second.first, times[static_cast<std::int64_t>(i)]);
    it->second.second = std::max(it->second.second, times[static_cast<std::int64_t>(i)]);
  }
  for (const auto& [level, range] : least_most) EXPECT_LE(range.second - range.first, 1) << level;
  EXPECT_EQ(times.count(static_cast<std::int64_t>(data.tokens.size()) - 1), 0u);  // the item without a level
}

TEST(Curriculum, AStepIsAFunctionOfSeedAndStepOnAnyNumberOfRanks) {
  const Levelled data({80, 60, 40});
  const StepSchedule one = data.schedule(), three = data.schedule(3);
  Levelled other = data;
  other.options.curriculum_seed = 43;
  const StepSchedule reseeded = other.schedule();
  bool differs = false;
  for (const std::int64_t step : {35, 3, 20, 0}) {
    auto a = data.items(one.plan(step)), b = data.items(three.plan(step)), c = other.items(reseeded.plan(step));
    for (auto* list : {&a, &b, &c}) std::sort(list->begin(), list->end());
    EXPECT_EQ(a, b);
    differs |= a != c;
  }
  EXPECT_TRUE(differs);
}

TEST(Curriculum, RowsHoldOneLevel) {
  Levelled data({200, 100, 100});
  data.options.packing = true;
  data.options.row_tokens = 600;
  data.options.global_batch_size = 10;
  const StepSchedule schedule = data.schedule();
  for (std::int64_t step = 0; step < schedule.total_steps(); ++step)
    for (const auto& micro : schedule.plan(step).micro_batches) {
      std::set<std::int32_t> levels;
      for (const std::int64_t item : micro) levels.insert(data.options.item_levels[static_cast<std::size_t>(item)]);
      EXPECT_LE(levels.size(), 1u);
    }
}

TEST(Curriculum, TablesAreReadAndMistakesNamed) {
  const CurriculumTable table = parse_curriculum(
      {{"levels", {"a", "b"}}, {"stages", {{{"until", 25}, {"shares", {3, 1}}}, {{"until", 100}, {"shares", {0, 7.5}}}}}});
  EXPECT_EQ(table.stages[0].until, 0.25);
  EXPECT_EQ(table.stages[0].shares, (std::vector<double>{0.75, 0.25}));
  EXPECT_EQ(table.stages[1].shares, (std::vector<double>{0, 1}));
  const auto stages = [](json list) { return json{{"levels", {"a", "b"}}, {"stages", std::move(list)}}; };
  const std::pair<json, const char*> wrong[] = {
      {json("x"), "levels"},
      {{{"levels", {"a", "a"}}, {"stages", json::array()}}, "twice"},
      {stages({{{"until", 100}, {"shares", {1}}}}), "1 shares for 2 levels"},
      {stages({{{"until", 100}, {"shares", {0, 0}}}}), "all shares are 0"},
      {stages({{{"until", 100}, {"shares", {1, -1}}}}), "at least 0"},
      {stages({{{"until", 50}, {"shares", {1, 1}}}}), "end at 100"},
      {stages({{{"until", 50}, {"shares", {1, 1}}}, {{"until", 40}, {"shares", {1, 1}}}}), "must rise"},
  };
  for (const auto& [value, message] : wrong) {
    try {
      parse_curriculum(value);
      ADD_FAILURE() << value;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(Levelled({10, 10, 0}).schedule(), ConfigError);  // a share of a level without items
}

}  // namespace
}  // namespace qft::loader
