#include "qft/infer/answer_all.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace qft::infer {
namespace {

TEST(Deal, BalancesCosts) {
  std::vector<std::int64_t> costs;
  for (std::int64_t i = 0; i < 100; ++i) costs.push_back(1 + i * i % 97);
  for (const int ranks : {1, 2, 3, 7}) {
    const auto owner = assign_by_cost(costs, ranks);
    ASSERT_EQ(owner.size(), costs.size());
    std::vector<std::int64_t> sums(static_cast<std::size_t>(ranks), 0);
    for (std::size_t i = 0; i < costs.size(); ++i) sums.at(static_cast<std::size_t>(owner[i])) += costs[i];
    EXPECT_LE(*std::ranges::max_element(sums) - *std::ranges::min_element(sums), 97) << ranks << " ranks";
  }
}

TEST(Deal, FewerItemsThanRanksLeavesSomeWithout) {
  const std::vector<std::int64_t> costs = {5, 3};
  const auto owner = assign_by_cost(costs, 4);
  EXPECT_NE(owner[0], owner[1]);
  EXPECT_TRUE(assign_by_cost({}, 3).empty());
  EXPECT_EQ(assigned_to(owner[0], costs, 4), std::vector<std::size_t>{0});
}

}  // namespace
}  // namespace qft::infer
