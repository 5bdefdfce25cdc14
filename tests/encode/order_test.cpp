// Sampling and mixing of datasets.
#include "qft/core/error.h"
#include "qft/core/numpy_random.h"
#include "qft/encode/record_order.h"

#include <map>
#include <set>

#include "fixture.h"

namespace {

using qft::ConfigError;
using qft::encode::DatasetExtent;
using qft::encode::MixOptions;
using qft::encode::RecordOrder;
using qft::encode::RecordRange;
using qft::encode::Split;

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

// Same order as datasets.interleave_datasets for lengths 2 and 4.
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

std::vector<std::int64_t> records_of(const RecordOrder& order) {
  std::vector<std::int64_t> records;
  for (std::int64_t i = 0; i < order.size(); ++i) records.push_back(order.at(i).record);
  return records;
}

// Ranges of datasets.load_dataset(..., split=...) on 205 records.
TEST(Split, TakesTheRecordsThatDatasetsTakes) {
  const auto ranges = [](const char* text) { return Split(text, "here").ranges(205); };
  using Ranges = std::vector<RecordRange>;
  EXPECT_EQ(ranges("train"), (Ranges{{0, 205}}));
  EXPECT_EQ(ranges("train[:]"), (Ranges{{0, 205}}));
  EXPECT_EQ(ranges("train[:10%]"), (Ranges{{0, 20}}));
  EXPECT_EQ(ranges("train[-3:]"), (Ranges{{202, 205}}));
  EXPECT_EQ(ranges("train[50%:]"), (Ranges{{102, 205}}));
  EXPECT_EQ(ranges("train[10:20%]"), (Ranges{{20, 41}}));
  EXPECT_EQ(ranges("train[33%:66%](pct1_dropremainder)"), (Ranges{{66, 132}}));
  EXPECT_EQ(ranges("train[:1_0]"), (Ranges{{0, 10}}));
  EXPECT_EQ(ranges("train[-300:5]"), (Ranges{{0, 5}}));
  EXPECT_EQ(ranges("train[:2] + train[-2:]"), (Ranges{{0, 2}, {203, 205}}));
  qft::test::expect_error<ConfigError>([&] { ranges("train[100:50]"); }, {"here", "none of the dataset's 205"});
}

TEST(RecordOrder, PartsAreDrawnFromAndNumberedAsInTheFile) {
  DatasetExtent parts = records(4);
  parts.parts = {{1, 3}, {8, 10}};
  EXPECT_EQ(listed(RecordOrder({parts, records(1)}, {})), "a1 a2 a8 a9 b0 ");
  parts.num_samples = 4;
  EXPECT_EQ(records_of(RecordOrder({parts}, {})), (std::vector<std::int64_t>{2, 9, 1, 8}));
}

// Numbers from numpy: np.random.seed(42), then permutation(20)[:8]; permutation(4) and choice(4, 3).
TEST(RecordOrder, NumSamplesAreNumpysDraws) {
  EXPECT_EQ(records_of(RecordOrder({{20, 8, std::nullopt}}, {})), (std::vector<std::int64_t>{0, 17, 15, 1, 8, 5, 11, 3}));
  EXPECT_EQ(records_of(RecordOrder({{4, 7, std::nullopt}}, {})), (std::vector<std::int64_t>{1, 3, 0, 2, 2, 3, 0}));
}

TEST(NumpyRandom, GeneratorsGiveNumpysNumbers) {
  qft::numpy::Generator generator(42);
  EXPECT_EQ(generator.permutation(10), (std::vector<std::int64_t>{5, 6, 0, 7, 3, 2, 4, 9, 1, 8}));
  const double probabilities[] = {0.2, 0.5, 0.3};
  std::vector<std::size_t> drawn(12);
  for (std::size_t& d : drawn) d = generator.choice(probabilities);
  EXPECT_EQ(drawn, (std::vector<std::size_t>{2, 2, 0, 1, 1, 2, 1, 2, 1, 1, 1, 0}));
  const auto large = qft::numpy::Generator(12345678901234u).permutation(100000);
  std::int64_t sum = 0;
  for (const std::int64_t value : large) sum = (sum * 31 + value) % 1000000007;
  EXPECT_EQ(sum, 883529142);
}

TEST(RecordOrder, RefusesProbabilitiesThatCannotWork) {
  MixOptions mix;
  mix.strategy = "interleave_over";
  mix.probabilities = {0.5, 0.6};
  qft::test::expect_error<ConfigError>([&] { RecordOrder({records(1), records(1)}, mix); }, {"1.1", "not to 1"});
  mix.probabilities = {1.0, 0.0};
  qft::test::expect_error<ConfigError>([&] { RecordOrder({records(1), records(1)}, mix); }, {"above 0"});
  mix.probabilities = {1.0};
  qft::test::expect_error<ConfigError>([&] { RecordOrder({records(1), records(1)}, mix); }, {"1 values for 2"});
}

}  // namespace
