// Rows that ranks share out: every number of rows, also fewer than ranks and numbers that do not divide.
#include "qft/model/row_sharing.h"
#include "qft/ops/norm.h"

#include <numeric>

#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

namespace qft::model {
namespace {

constexpr std::int64_t kWidth = 3;

/// [rows, kWidth] with different numbers, small enough that sums over ranks are exact in bf16.
at::Tensor numbers(std::int64_t rows, at::ScalarType type) {
  return at::arange(rows * kWidth, at::kLong).remainder(13).view({rows, kWidth}).to(type);
}

class RowSharingTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  RowSharing sharing{world()};
};

TEST_P(RowSharingTest, EachRowHasOneRank) {
  for (const std::int64_t rows : {0, 1, 2, 3, 5, 7, 8, 12}) {
    std::int64_t next = 0;
    for (int r = 0; r < sharing.ranks(); ++r) {
      const OwnRows own = sharing.rows_of(rows, r);
      EXPECT_EQ(own.first, next) << rows << " rows, rank " << r;
      EXPECT_LE(own.count, own.room);
      EXPECT_EQ(own.room, (rows + world().size() - 1) / world().size());
      next += own.count;
    }
    EXPECT_EQ(next, rows);
    EXPECT_GE(sharing.room_of_all(rows), rows);
  }
}

TEST_P(RowSharingTest, CollectedRowsAreTheMicroBatchAndZeros) {
  for (const std::int64_t rows : {1, 2, 3, 5, 7, 12}) {
    const at::Tensor want = numbers(rows, GetParam());
    const OwnRows own = sharing.rows_of(rows);
    const at::Tensor mine = at::full({own.room, kWidth}, 99, want.options());
    own.filled(mine).copy_(own.of(want));
    own.clear_rest(mine);
    const at::Tensor all = at::full({sharing.room_of_all(rows), kWidth}, 77, want.options());
    sharing.all_gather(mine, all);
    EXPECT_TRUE(all.narrow(0, 0, rows).equal(want)) << rows;
    EXPECT_EQ(all.narrow(0, rows, all.size(0) - rows).abs().sum().item<double>(), 0.0) << rows;
  }
}

TEST_P(RowSharingTest, SumsAreDealtAndTheRestIsZero) {
  for (const std::int64_t rows : {1, 2, 3, 5, 7, 12}) {
    const at::Tensor one = numbers(rows, GetParam());
    const OwnRows own = sharing.rows_of(rows);
    const at::Tensor all = at::full({sharing.room_of_all(rows), kWidth}, NAN, one.options());
    all.narrow(0, 0, rows).copy_(one * (sharing.rank() + 1));
    const at::Tensor mine = at::full({own.room, kWidth}, 99, one.options());
    sharing.reduce_scatter(all, rows, mine);
    const int sum = sharing.ranks() * (sharing.ranks() + 1) / 2;
    EXPECT_TRUE(own.filled(mine).equal(own.of(one * sum))) << rows;
    EXPECT_EQ(mine.narrow(0, own.count, own.room - own.count).abs().sum().item<double>(), 0.0) << rows;
  }
}

TEST_P(RowSharingTest, SomeRowsAreCollectedAndTheirSumsDealt) {
  const std::int64_t rows = 7;
  for (const std::vector<std::int32_t>& chosen : std::vector<std::vector<std::int32_t>>{{0, 1, 4, 6}, {6}, {}, {2, 3}}) {
    const auto counts = sharing.counts_of(chosen, rows);
    const auto n = static_cast<std::int64_t>(chosen.size());
    ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), n);
    const at::Tensor want = numbers(n, GetParam());
    const auto rank = static_cast<std::size_t>(sharing.rank());
    const std::int64_t first = std::accumulate(counts.begin(), counts.begin() + sharing.rank(), std::int64_t{0});
    for (std::int64_t i = first; i < first + counts[rank]; ++i) {
      const OwnRows own = sharing.rows_of(rows);
      EXPECT_GE(chosen[static_cast<std::size_t>(i)], own.first);
      EXPECT_LT(chosen[static_cast<std::size_t>(i)], own.end());
    }
    const at::Tensor mine = want.narrow(0, first, counts[rank]).clone(), all = at::zeros({n, kWidth}, want.options());
    sharing.all_gather(mine, counts, all);
    EXPECT_TRUE(all.equal(want));
    mine.zero_();
    sharing.reduce_scatter(all, counts, mine);
    EXPECT_TRUE(mine.equal(want.narrow(0, first, counts[rank]) * sharing.ranks()));
  }
}

TEST_P(RowSharingTest, SumsAndMaximaReachAllRanks) {
  const at::Tensor values = at::full({5}, sharing.rank() + 1, at::TensorOptions().dtype(GetParam()));
  const at::Tensor sums = values.clone(), most = values.clone();
  sharing.sum(sums);
  sharing.max(most);
  EXPECT_TRUE(sums.equal(at::full_like(values, sharing.ranks() * (sharing.ranks() + 1) / 2)));
  EXPECT_TRUE(most.equal(at::full_like(values, sharing.ranks())));
}

TEST(RowSharing, ARankAloneHasAllRows) {
  const RowSharing alone;
  const OwnRows own = alone.rows_of(7);
  EXPECT_TRUE(alone.alone());
  EXPECT_EQ(own.first, 0);
  EXPECT_EQ(own.count, 7);
  EXPECT_EQ(own.room, 7);
}

/// OLMo 2's norms of q and k. The last rank has a copy of the first one's columns, as ranks do that share a key-value head.
TEST(RowSharing, ANormOfSharedColumnsIsTheWholeNorm) {
  const RowSharing sharing{world()};
  constexpr std::int64_t kRows = 5, kColumns = 4;
  const int parts = sharing.ranks() - 1;
  const bool copies = sharing.rank() == parts;
  const std::int64_t width = kColumns * parts, first = copies ? 0 : kColumns * sharing.rank();
  at::manual_seed(5);
  const auto random = [](at::IntArrayRef shape) { return at::randn(shape, at::kDouble); };
  const at::Tensor x = random({kRows, width}), weight = random({width}), gy = random({kRows, width}),
                   of_copy = random({kRows, kColumns});
  ops::Workspace workspace(at::kCPU);
  const at::Tensor y = at::empty_like(x), rstd = at::empty({kRows}, at::kDouble), gx = at::empty_like(x),
                   gweight = at::zeros_like(weight);
  ops::rms_norm_forward(x, weight, 1e-6, y, rstd);
  ops::rms_norm_backward({.gy = gy, .x = x, .weight = weight, .rstd = rstd, .gx = gx, .gweight = gweight}, workspace);

  const auto part = [&](const at::Tensor& all) { return all.narrow(-1, first, kColumns).clone(at::MemoryFormat::Contiguous); };
  const ops::SharedColumns shared{width, [&](const at::Tensor& sums) { sharing.sum(sums); }, !copies};
  const at::Tensor my_y = part(y).zero_(), my_rstd = at::zeros_like(rstd), my_gx = part(gx).zero_(),
                   my_gweight = part(gweight).zero_();
  ops::rms_norm_forward(part(x), part(weight), 1e-6, my_y, my_rstd, ops::NormWeight::plain, shared);
  EXPECT_LT((my_y - part(y)).abs().max().item<double>(), 1e-14);
  EXPECT_LT((my_rstd - rstd).abs().max().item<double>(), 1e-14);
  const at::Tensor my_gy = copies ? of_copy : sharing.rank() == 0 ? part(gy) - of_copy : part(gy);
  ops::rms_norm_backward(
      {.gy = my_gy, .x = part(x), .weight = part(weight), .rstd = my_rstd, .gx = my_gx, .gweight = my_gweight, .shared = shared},
      workspace);
  const at::Tensor sums = at::zeros({kRows + 1, width}, at::kDouble);
  sums.narrow(0, 0, kRows).narrow(1, first, kColumns).add_(my_gx);
  sums[kRows].narrow(0, first, kColumns).add_(my_gweight);
  sharing.sum(sums);
  EXPECT_LT((sums.narrow(0, 0, kRows) - gx).abs().max().item<double>(), 1e-13);
  EXPECT_LT((sums[kRows] - gweight).abs().max().item<double>(), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(Types, RowSharingTest, testing::Values(at::kFloat, at::kDouble, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace qft::model
