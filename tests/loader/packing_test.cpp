#include "qft/core/error.h"
#include "qft/loader/row_packing.h"

#include <ctime>
#include <numeric>
#include <vector>

#include "io/temp_dir.h"
#include "pack/fixture.h"
#include <gtest/gtest.h>

namespace qft::loader {
namespace {

using test::alpaca_like_lengths;

std::vector<std::vector<std::int64_t>> rows_of(const RowPlan& plan, std::uint64_t epoch) {
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(plan.rows()));
  for (std::int64_t r = 0; r < plan.rows(); ++r) plan.append_row(epoch, r, rows[static_cast<std::size_t>(r)]);
  return rows;
}

void expect_each_item_once_and_rows_within(const RowPlan& plan, const std::vector<std::int32_t>& lengths, std::uint64_t epoch) {
  std::vector<int> seen(lengths.size());
  for (const auto& row : rows_of(plan, epoch)) {
    std::int64_t tokens = 0;
    for (const std::int64_t item : row) {
      ++seen[static_cast<std::size_t>(item)];
      tokens += lengths[static_cast<std::size_t>(item)];
    }
    EXPECT_FALSE(row.empty());
    EXPECT_LE(tokens, plan.row_tokens());
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<std::ptrdiff_t>(lengths.size()));
}

TEST(RowPlan, EveryItemLiesInOneRowOfEveryEpoch) {
  for (const std::size_t count : {1, 2, 77, 5000}) {
    for (const bool shuffle : {false, true}) {
      const auto lengths = alpaca_like_lengths(count, 600, count);
      const RowPlan plan(lengths, 600, 9, shuffle);
      for (const std::uint64_t epoch : {0, 1, 7}) expect_each_item_once_and_rows_within(plan, lengths, epoch);
    }
  }
}

TEST(RowPlan, FillsRowsOfAlpacaLikeLengths) {
  const auto lengths = alpaca_like_lengths(52000, 2048);
  EXPECT_GE(RowPlan(lengths, 2048, 42, true).efficiency(), 0.999);
  EXPECT_GE(RowPlan(lengths, 2048, 42, false).efficiency(), 0.995);
  for (const std::int32_t row : {1024, 4096})
    EXPECT_GE(RowPlan(alpaca_like_lengths(52000, row), row, 42, true).efficiency(), 0.995) << row;
}

TEST(RowPlan, TakesItemsThatFillARowExactly) {
  const std::vector<std::int32_t> lengths = {64, 1, 63, 32, 32, 64};
  for (const bool shuffle : {false, true}) {
    const RowPlan plan(lengths, 64, 3, shuffle);
    EXPECT_EQ(plan.rows(), 4);
    EXPECT_DOUBLE_EQ(plan.efficiency(), 1.0);
    expect_each_item_once_and_rows_within(plan, lengths, 0);
  }
}

TEST(RowPlan, EpochsDifferInOrderAndCompanyButNotInNumberOfRows) {
  const auto lengths = alpaca_like_lengths(3000, 512);
  const RowPlan plan(lengths, 512, 42, true);
  const auto first = rows_of(plan, 0), second = rows_of(plan, 1);
  EXPECT_NE(first, second);
  EXPECT_EQ(first, rows_of(RowPlan(lengths, 512, 42, true), 0));
  EXPECT_NE(first, rows_of(RowPlan(lengths, 512, 43, true), 0));
  auto sorted_first = first, sorted_second = second;
  std::sort(sorted_first.begin(), sorted_first.end());
  std::sort(sorted_second.begin(), sorted_second.end());
  EXPECT_NE(sorted_first, sorted_second) << "the same rows, only in another order";
}

TEST(RowPlan, WithoutShufflingItemsKeepTheirOrderAsFarAsRowsAllow) {
  const std::vector<std::int32_t> lengths = {30, 30, 30, 4, 30};
  const auto rows = rows_of(RowPlan(lengths, 64, 1, false), 5);
  EXPECT_EQ(rows, (std::vector<std::vector<std::int64_t>>{{0, 1, 3}, {2, 4}}));
}

TEST(RowPlan, RefusesAnItemLongerThanARow) {
  const std::vector<std::int32_t> lengths = {10, 65};
  const std::string error = test::error_of([&] { RowPlan(lengths, 64, 1, true); });
  EXPECT_TRUE(test::contains(error, "item 1 has 65 tokens"));
  EXPECT_TRUE(test::contains(error, "row of 64"));
  EXPECT_THROW(RowPlan(lengths, 0, 1, true), ConfigError);
}

TEST(RowPlan, PlansTenMillionItemsInSeconds) {
  const auto lengths = alpaca_like_lengths(10'000'000, 2048);
  const std::clock_t start = std::clock();  // CPU time of this process: other work on the machine does not count
  const RowPlan plan(lengths, 2048, 42, true);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("seconds", std::to_string(seconds));
  RecordProperty("efficiency", std::to_string(plan.efficiency()));
  EXPECT_LT(seconds, 10.0);
  EXPECT_GE(plan.efficiency(), 0.999);
  std::vector<std::int64_t> row;
  plan.append_row(1, plan.rows() - 1, row);
  EXPECT_FALSE(row.empty());
}

}  // namespace
}  // namespace qft::loader
