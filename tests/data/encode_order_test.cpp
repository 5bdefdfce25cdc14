// Sampling and mixing of datasets.
#include "qft/core/error.h"
#include "qft/data/record_order.h"

#include <map>
#include <set>

#include "encode_fixture.h"

namespace {

using qft::ConfigError;
using qft::data::DatasetExtent;
using qft::data::MixOptions;
using qft::data::RecordOrder;

std::string listed(const RecordOrder& order) {
  std::string text;
  for (std::int64_t i = 0; i < order.size(); ++i)
    text += static_cast<char>('a' + order.at(i).dataset) + std::to_string(order.at(i).record) + " ";
  return text;
}

DatasetExtent records(std::int64_t n) {
  return {n, std::nullopt, std::nullopt};
}

TEST(RecordOrder, ConcatenatesByDefault) {
  EXPECT_EQ(listed(RecordOrder({records(2), records(3)}, {})), "a0 a1 b0 b1 b2 ");
}

TEST(RecordOrder, MaxSamplesTakesTheFirstOfEach) {
  EXPECT_EQ(listed(RecordOrder({{4, std::nullopt, 2}, {1, std::nullopt, 2}}, {})), "a0 a1 b0 ");
}

// As datasets.interleave_datasets does for lengths 2 and 4.
TEST(RecordOrder, TakesTurnsByTheThreeStrategies) {
  const auto mixed = [](const char* strategy) {
    MixOptions mix;
    mix.strategy = strategy;
    return listed(RecordOrder({records(2), records(4)}, mix));
  };
  EXPECT_EQ(mixed("interleave_under"), "a0 b0 a1 b1 ");
  EXPECT_EQ(mixed("interleave_over"), "a0 b0 a1 b1 a0 b2 a1 b3 ");
  EXPECT_EQ(mixed("interleave_once"), "a0 b0 a1 b1 b2 b3 ");
}

TEST(RecordOrder, ProbabilitiesSetTheShares) {
  MixOptions mix;
  mix.strategy = "interleave_under";
  mix.probabilities = {0.2, 0.8};
  const RecordOrder order({records(100000), records(4000)}, mix);
  std::map<int, int> counts;
  for (std::int64_t i = 0; i < order.size(); ++i) ++counts[order.at(i).dataset];
  EXPECT_EQ(counts[1], 4000);
  EXPECT_NEAR(counts[0], 1000, 120);
  mix.seed = 43;
  EXPECT_NE(listed(RecordOrder({records(100000), records(4000)}, mix)), listed(order));
}

TEST(RecordOrder, NumSamplesDrawsWithoutReplacementInSourceOrder) {
  const RecordOrder order({{100, 30, std::nullopt}}, {});
  std::set<std::int64_t> seen;
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < order.size(); ++i) {
    EXPECT_GT(order.at(i).record, last);
    seen.insert(last = order.at(i).record);
  }
  EXPECT_EQ(seen.size(), 30u);
  EXPECT_NE(*seen.rbegin(), 29);  // not just the first
}

TEST(RecordOrder, NumSamplesAboveTheSizeRepeatsAllEvenly) {
  const RecordOrder order({{4, 10, std::nullopt}}, {});
  std::map<std::int64_t, int> counts;
  for (std::int64_t i = 0; i < order.size(); ++i) ++counts[order.at(i).record];
  EXPECT_EQ(order.size(), 10);
  for (std::int64_t r = 0; r < 4; ++r) EXPECT_TRUE(counts[r] == 2 || counts[r] == 3);
}

TEST(RecordOrder, RefusesProbabilitiesThatCannotWork) {
  MixOptions mix;
  mix.strategy = "interleave_over";
  mix.probabilities = {0.5, 0.6};
  qft::test::expect_error<ConfigError>(
      [&] {
        RecordOrder({records(1), records(1)}, mix);
      },
      {"1.1", "not to 1"});
  mix.probabilities = {1.0, 0.0};
  qft::test::expect_error<ConfigError>([&] { RecordOrder({records(1), records(1)}, mix); }, {"above 0"});
  mix.probabilities = {1.0};
  qft::test::expect_error<ConfigError>(
      [&] {
        RecordOrder({records(1), records(1)}, mix);
      },
      {"1 values for 2"});
}

}  // namespace
