#include <limits>

#include "ops/linear/brgemm_cpu.h"
#include "ops/linear/matmul_blocked_cpu.h"
#include "ops_support.h"
#include <ATen/TensorOperators.h>

namespace qft::ops::blocked {
namespace {

using namespace testing;

at::Tensor no_bf16s(at::IntArrayRef shape) {
  return zeros(shape, at::kBFloat16);
}

struct BlockedProduct : EachTileType {};
INSTANTIATE_TEST_SUITE_P(AllBlocks, BlockedProduct, kAllTileTypes);

// Rows: fewer than a unit, one unit, units with a remainder, more than one group. Columns: few, and around a panel. Inner: around
// a block.
TEST_P(BlockedProduct, IsRightForAllSizesAndLayouts) {
  std::uint64_t seed = 0;
  for (const std::int64_t m : {1, 16, 37, 300, 2200})
    for (const std::int64_t n : {1, 10, 32, 50, 129})
      for (const std::int64_t k : {2, 66, 1024, 1030}) {
        // All positive, so that nothing cancels when a single number is the whole result.
        const at::Tensor a = bf16s({m, k}, ++seed).abs(), b = bf16s({k, n}, ++seed).abs();
        const at::Tensor bt = b.t().contiguous().t(), out = no_bf16s({m + 1, n});
        for (const at::Tensor& right : {b, bt}) {
          ASSERT_TRUE(multiply({out.narrow(0, 0, m), a, right, {}, 0.5, {}}, workspace(), GetParam()));
          expect_close(out.narrow(0, 0, m), 0.5 * exact_product(a, b), kOneRounding, "product");
          ASSERT_EQ(out[m].abs().sum().item<double>(), 0.0) << "written beyond the last of " << m << " rows";
        }
      }
}

TEST_P(BlockedProduct, AddsBiasAndNarrowTermsWhereTheyBelong) {
  const std::int64_t m = 150, n = 200, k = 96;
  const at::Tensor a = bf16s({m, k}, 1), b = bf16s({n, k}, 2), bias = bf16s({n}, 3);
  const at::Tensor left = bf16s({m, 14}, 4);  // of both terms, side by side
  const at::Tensor first = bf16s({70, 8}, 5), second = bf16s({6, 45}, 6);
  const at::Tensor out = no_bf16s({m, n});
  ASSERT_TRUE(multiply({out, a, b.t(), bias, 2.0, {{left.narrow(1, 0, 8), first.t(), 20}, {left.narrow(1, 8, 6), second, 155}}},
                       workspace(), GetParam()));
  at::Tensor expected = exact_product(a, b.t());
  expected.narrow(1, 20, 70).add_(exact_product(left.narrow(1, 0, 8), first.t()));
  expected.narrow(1, 155, 45).add_(exact_product(left.narrow(1, 8, 6), second));
  expect_close(out, 2.0 * expected + bias.to(at::kDouble), kOneRounding, "product");
}

TEST_P(BlockedProduct, AppliesFactorsAndKeepsUnscaledOutput) {
  const std::int64_t m = 150, n = 75, k = 96;
  const at::Tensor a = bf16s({m, k}, 1), b = bf16s({n, k}, 2), bias = bf16s({n}, 3), left = bf16s({m, 8}, 4),
                   right = bf16s({8, n}, 5);
  const at::Tensor factors = randn({n}, at::kFloat, 6), before = no_bf16s({m, n + 9}), out = no_bf16s({m, n});
  ASSERT_TRUE(multiply({out, a, b.t(), bias, 2.0, {{left, right}}, factors, before.narrow(1, 4, n)}, workspace(), GetParam()));
  const at::Tensor expected = 2.0 * (exact_product(a, b.t()) + exact_product(left, right));
  expect_close(before.narrow(1, 4, n), expected, kOneRounding, "before");
  expect_close(out, factors.to(at::kDouble) * expected + bias.to(at::kDouble), kOneRounding, "product");
  EXPECT_EQ(before.narrow(1, 0, 4).abs().sum().item<double>() + before.narrow(1, n + 4, 5).abs().sum().item<double>(), 0.0);
}

TEST(WidenedProduct, NeedsNoCopyForZeroRows) {
  EXPECT_EQ(operand_copy_bytes(0, 64, TileType::fp32), 0);
}

TEST_P(BlockedProduct, TakesColumnsOfWiderTensors) {
  const at::Tensor wide = bf16s({90, 300}, 1), b = bf16s({64, 40}, 2);
  const at::Tensor a = wide.narrow(1, 10, 64), out = no_bf16s({90, 100});
  ASSERT_TRUE(multiply({out.narrow(1, 30, 40), a, b, {}, 1.0, {}}, workspace(), GetParam()));
  expect_close(out.narrow(1, 30, 40), exact_product(a, b), kOneRounding, "product");
  EXPECT_EQ(out.narrow(1, 0, 30).abs().sum().item<double>() + out.narrow(1, 70, 30).abs().sum().item<double>(), 0.0);
}

// Batch invariance: packing sequences together changes nothing.
TEST_P(BlockedProduct, IsBatchInvariant) {
  const at::Tensor a = bf16s({333, 200}, 1), b = bf16s({200, 70}, 2);
  for (const std::int64_t columns : {8, 70}) {
    const at::Tensor right = b.narrow(1, 0, columns), all = no_bf16s({333, columns}), some = no_bf16s({45, columns});
    ASSERT_TRUE(multiply({all, a, right, {}, 1.0, {}}, workspace(), GetParam()));
    ASSERT_TRUE(multiply({some, a.narrow(0, 101, 45), right, {}, 1.0, {}}, workspace(), GetParam()));
    EXPECT_TRUE(some.equal(all.narrow(0, 101, 45)));
  }
}

// Processors multiply denormals slowly: here they count as zero.
TEST_P(BlockedProduct, FlushesDenormalsOnlyInside) {
  const at::Tensor tiny = bf16s({64, 64}, 1).fill_(1e-39), out = no_bf16s({64, 64});
  ASSERT_TRUE(multiply({out, tiny, bf16s({64, 64}, 2).fill_(1.0), {}, 1.0, {}}, workspace(), GetParam()));
  EXPECT_EQ(out.abs().sum().item<double>(), 0.0);
  volatile float least = std::numeric_limits<float>::min();
  EXPECT_GT(least / 2, 0.0F);
}

TEST_P(BlockedProduct, RejectsUnsupportedProducts) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor wide = randn({4, 4}, dtype, 1), out = zeros({4, 4}, dtype);
    EXPECT_FALSE(multiply({out, wide, wide, {}, 1.0, {}}, workspace(), GetParam()));
    EXPECT_EQ(out.abs().sum().item<double>(), 0.0);
  }
  EXPECT_FALSE(multiply({no_bf16s({20, 4}), bf16s({20, 7}, 1), bf16s({7, 4}, 2), {}, 1.0, {}}, workspace(), GetParam()));
}

}  // namespace
}  // namespace qft::ops::blocked
