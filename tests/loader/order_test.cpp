#include "loader/order.h"

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace qft::loader {
namespace {

std::vector<std::int64_t> all_of(const Order& order) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < order.size(); ++i) values.push_back(order(i));
  return values;
}

TEST(Order, IsAPermutationOfEverySize) {
  for (const std::int64_t size : {1, 2, 3, 5, 64, 255, 256, 257, 1000, 65537}) {
    const auto values = all_of(Order(size, 7, 3));
    const std::set<std::int64_t> distinct(values.begin(), values.end());
    EXPECT_EQ(distinct.size(), static_cast<std::size_t>(size));
    EXPECT_EQ(*distinct.begin(), 0);
    EXPECT_EQ(*distinct.rbegin(), size - 1);
  }
}

TEST(Order, DependsOnSeedEpochAndStreamAlone) {
  const auto base = all_of(Order(1000, 42, 0));
  EXPECT_EQ(base, all_of(Order(1000, 42, 0)));
  EXPECT_NE(base, all_of(Order(1000, 43, 0)));
  EXPECT_NE(base, all_of(Order(1000, 42, 1)));
  EXPECT_NE(base, all_of(Order(1000, 42, 0, 1)));
  // Must never change: a checkpoint of today must find the same samples tomorrow.
  const Order order(10, 42, 0);
  const std::vector<std::int64_t> now = all_of(order);
  EXPECT_EQ(now, (std::vector<std::int64_t>{7, 9, 5, 3, 1, 6, 2, 4, 8, 0}));
}

// Returns chi-squared of counts that should be equal, as standard deviations from its mean.
double excess(const std::map<std::vector<std::int64_t>, int>& counts, double cells, double samples) {
  double chi = (cells - static_cast<double>(counts.size())) * samples / cells;
  for (const auto& [key, n] : counts) chi += std::pow(n - samples / cells, 2) / (samples / cells);
  return (chi - (cells - 1)) / std::sqrt(2 * (cells - 1));
}

TEST(Order, AllOrdersOfFewElementsAreEquallyLikely) {
  for (const auto& [size, cells] : {std::pair{3, 6.0}, {4, 24.0}, {5, 120.0}, {6, 720.0}}) {
    std::map<std::vector<std::int64_t>, int> counts;
    constexpr int kSamples = 60000;
    for (int epoch = 0; epoch < kSamples; ++epoch) ++counts[all_of(Order(size, 1, epoch))];
    EXPECT_LT(std::abs(excess(counts, cells, kSamples)), 4.0) << size;
  }
}

TEST(Order, EveryElementIsEquallyLikelyAtEveryPositionAndPairsAreIndependent) {
  constexpr int kSize = 300, kSamples = 30000;
  std::map<std::vector<std::int64_t>, int> at_front, neighbours;
  for (int seed = 0; seed < kSamples; ++seed) {
    const Order order(kSize, seed, 0);
    ++at_front[{order(0)}];
    ++neighbours[{order(10) / 30, order(11) / 30}];
  }
  EXPECT_LT(std::abs(excess(at_front, kSize, kSamples)), 4.0);
  EXPECT_LT(std::abs(excess(neighbours, 100, kSamples)),
            5.0);  // the diagonal is rarer by 1/300 of a cell's 300
}

}  // namespace
}  // namespace qft::loader
