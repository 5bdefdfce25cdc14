// Rates of collectives and of pairs of ranks.
#include "qft/comm/bandwidth.h"

#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <set>

#include <gtest/gtest.h>

namespace qft::comm {
namespace {

TEST(Bandwidth, RowsAreConsistent) {
  auto& world = Session::current().world();
  for (const auto kind :
       {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::broadcast, OpKind::all_to_all}) {
    const auto row = measure(world, c10::kCPU, kind, 5000, 0.001);
    const auto each = sizeof(float) * static_cast<std::size_t>(world.size());
    EXPECT_EQ(row.bytes, 5000 / each * each);
    EXPECT_GT(row.microseconds, 0);
    EXPECT_NEAR(row.algorithm_gb_s, static_cast<double>(row.bytes) / row.microseconds / 1e3, 1e-6 * row.algorithm_gb_s);
    EXPECT_DOUBLE_EQ(row.bus_gb_s, row.algorithm_gb_s * bus_factor(kind, world.size()));
  }
}

TEST(Bandwidth, FactorsSizesAndWords) {
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::all_reduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor(OpKind::all_gather, 4), 0.75);
  EXPECT_EQ(bandwidth_sizes(100), (std::vector<std::size_t>{8, 64, 100}));
  EXPECT_EQ(parse_collective("reduce_scatter"), OpKind::reduce_scatter);
  EXPECT_THROW(parse_collective("send"), ConfigError);
}

TEST(Bandwidth, VerificationPasses) {
  EXPECT_TRUE(verify_collectives(Session::current().world(), c10::kCPU).empty());
}

TEST(PairRates, EveryPairMeetsOnce) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const auto rounds = pair_rounds(ranks);
    EXPECT_EQ(static_cast<int>(rounds.size()), ranks - 1 + ranks % 2);
    std::set<std::pair<int, int>> met;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [low, high] : round) {
        EXPECT_LT(low, high);
        EXPECT_LT(high, ranks);
        EXPECT_TRUE(busy.insert(low).second && busy.insert(high).second) << "two at a time";
        EXPECT_TRUE(met.insert({low, high}).second) << "a pair twice";
      }
    }
    EXPECT_EQ(static_cast<int>(met.size()), ranks * (ranks - 1) / 2);
  }
}

TEST(PairRates, AllRanksGetTheRateOfEachDirection) {
  auto& world = Session::current().world();
  const auto rates = measure_pairs(world, c10::kCPU, 0.005);
  EXPECT_EQ(static_cast<int>(rates.size()), world.size() * (world.size() - 1));
  for (const auto& rate : rates) EXPECT_GT(rate.bytes_per_second, 1e6);
}

}  // namespace
}  // namespace qft::comm
