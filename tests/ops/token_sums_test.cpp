#include "qft/ops/token_sums.h"

#include <vector>

#include "ops/linear/token_sums_blocked_cpu.h"
#include "ops_support.h"
#include <ATen/TensorOperators.h>

namespace qft::ops {
namespace {

using namespace testing;

at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
  return exact_product(a.t(), b);
}

struct Blocked : EachTileType {};
INSTANTIATE_TEST_SUITE_P(AllBlocks, Blocked, kAllTileTypes);

// Tokens: fewer than a unit, one block, around a chunk. Rows: like a LoRA factor's, around a group and its parts. Columns: around
// a panel.
TEST_P(Blocked, SumsAllSizes) {
  for (const std::int64_t tokens : {1, 63, 256, 700, 1024, 1500})
    for (const std::int64_t m : {1, 8, 24, 128, 301})
      for (const std::int64_t n : {2, 45, 64, 150, 300}) {
        const at::Tensor a = bf16s({tokens, m}, 1), b = bf16s({tokens, n}, 2), out = zeros({m, n}, at::kFloat);
        const std::vector<TokenSum> sums = {{out, a, b}};
        for (int i = 0; i < 2; ++i) ASSERT_TRUE(blocked::add_token_sums(sums, workspace(), GetParam()));
        expect_close(out, 2.0 * exact(a, b), 1e-6, "sum");
        const at::Tensor transposed = zeros({n, m}, at::kFloat);
        ASSERT_TRUE(blocked::add_token_sums(std::vector<TokenSum>{{transposed.t(), a, b}}, workspace(), GetParam()));
        expect_close(transposed.t(), exact(a, b), 1e-6, "transposed sum");
      }
}

TEST_P(Blocked, SumsIntoGradientsOfAnyLayoutInOneCall) {
  for (const std::int64_t tokens : {63, 700}) {
    const at::Tensor a = bf16s({tokens, 140}, 1).abs(), b = bf16s({tokens, 150}, 2).abs();
    const at::Tensor narrow = a.narrow(1, 8, 8), part = b.narrow(1, 75, 70);
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const at::Tensor whole = zeros({140, 150}, dtype), transposed = zeros({70, 8}, dtype);
      const at::Tensor wide = zeros({8, 100}, dtype);
      const std::vector<TokenSum> sums = {{whole, a, b}, {transposed.t(), narrow, part}, {wide.narrow(1, 20, 70), narrow, part}};
      ASSERT_TRUE(blocked::add_token_sums(sums, workspace(), GetParam()));
      const double tolerance = dtype == at::kFloat ? 1e-6 : kOneRounding;
      expect_close(whole, exact(a, b), tolerance, "sum");
      expect_close(transposed, exact(part, narrow), tolerance, "transposed sum");
      expect_close(wide.narrow(1, 20, 70), exact(narrow, part), tolerance, "columns of a wider sum");
      EXPECT_EQ(wide.narrow(1, 0, 20).abs().sum().item<double>() + wide.narrow(1, 90, 10).abs().sum().item<double>(), 0.0);
    }
  }
}

// A half type rounds the running sum, not each product.
TEST_P(Blocked, Accumulates) {
  const at::Tensor a = bf16s({300, 40}, 1), b = bf16s({300, 70}, 2), before = bf16s({40, 70}, 3);
  const at::Tensor out = before.clone();
  ASSERT_TRUE(blocked::add_token_sums(std::vector<TokenSum>{{out, a, b}}, workspace(), GetParam()));
  expect_close(out, before.to(at::kDouble) + exact(a, b), kOneRounding, "sum");
  const at::Tensor transposed = before.t().contiguous();
  ASSERT_TRUE(blocked::add_token_sums(std::vector<TokenSum>{{transposed.t(), a, b}}, workspace(), GetParam()));
  EXPECT_TRUE(transposed.t().equal(out)) << "rounding must not depend on the layout";
}

TEST_P(Blocked, RejectsOtherTypes) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf}) {
    const at::Tensor a = randn({20, 8}, at::kFloat, 1).to(dtype), out = zeros({8, 8}, dtype);
    EXPECT_FALSE(blocked::add_token_sums(std::vector<TokenSum>{{out, a, a}}, workspace(), GetParam()));
    EXPECT_EQ(out.abs().sum().item<double>(), 0.0);
  }
}

TEST(TokenSums, AreRightInAllTypes) {
  const at::Tensor a = randn({30, 20}, at::kDouble, 1), b = randn({30, 12}, at::kDouble, 2);
  struct Case {
    at::ScalarType operand, sum;
    double tolerance;
  };
  for (const Case& c : {Case{at::kDouble, at::kDouble, 1e-14},
                        {at::kFloat, at::kFloat, 1e-6},
                        {at::kHalf, at::kFloat, 1e-3},
                        {at::kBFloat16, at::kFloat, 6e-3},
                        {at::kBFloat16, at::kBFloat16, 2e-2}}) {
    const at::Tensor left = a.to(c.operand), right = b.to(c.operand);
    const at::Tensor plain = zeros({20, 12}, c.sum), transposed = zeros({12, 20}, c.sum);
    add_token_sums(std::vector<TokenSum>{{plain, left, right}, {transposed.t(), left, right}}, workspace());
    expect_close(plain, exact(left, right), c.tolerance, "sum");
    expect_close(transposed.t(), exact(left, right), c.tolerance, "transposed sum");
  }
}

TEST(TokenSums, ChunksLargeGradients) {
  const at::Tensor a = randn({3, 3000}, at::kFloat, 1).to(at::kHalf), b = randn({3, 1500}, at::kFloat, 2).to(at::kHalf);
  const at::Tensor grad = zeros({3000, 1500}, at::kFloat);
  add_token_sums(std::vector<TokenSum>{{grad, a, b}}, workspace());
  expect_close(grad, exact(a, b), 1e-3, "grad");
}

}  // namespace
}  // namespace qft::ops
