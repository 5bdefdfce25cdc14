#include "parallel/sum_tree.h"

#include "qft/core/error.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace qft::parallel {
namespace {

using Nodes = std::vector<TreeNode>;

at::Tensor leaf(std::int64_t i) {
  return at::full({3}, 1.0F / static_cast<float>(3 * i + 1));
}

/// The sum of the leaves [first, last) by definition, in fp32.
float tree(std::int64_t first, std::int64_t last) {
  if (last - first == 1) return leaf(first)[0].item<float>();
  std::int64_t half = 1;
  while (2 * half < last - first) half *= 2;
  return tree(first, first + half) + tree(first + half, last);
}

TEST(NodesOf, AreTheLargestThatFit) {
  EXPECT_EQ(nodes_of(0, 8), (Nodes{{3, 0}}));
  EXPECT_EQ(nodes_of(1, 6), (Nodes{{0, 1}, {1, 1}, {1, 2}, {0, 6}}));
  EXPECT_EQ(nodes_of(5, 0), Nodes{});
}

TEST(SumTree, GivesTheSameBitsHoweverLeavesAreSharedOut) {
  for (std::int64_t n = 1; n <= 19; ++n)
    for (std::int64_t parts = 1; parts <= n + 1; ++parts) {
      SumTree whole;
      for (std::int64_t p = 0; p < parts; ++p) {
        const std::int64_t first = n * p / parts, last = n * (p + 1) / parts;
        SumTree part;
        for (std::int64_t i = first; i < last; ++i) part.add({0, i}, leaf(i));
        const Nodes nodes = nodes_of(first, last - first);
        ASSERT_EQ(part.sums().size(), nodes.size());
        for (std::size_t k = 0; k < nodes.size(); ++k) whole.add(nodes[k], part.sums()[k]);
      }
      EXPECT_EQ(whole.finish()[1].item<float>(), tree(0, n)) << n << " leaves in " << parts << " parts";
    }
}

TEST(SumTree, KeepsFewSumsAndTheirMemory) {
  SumTree sum;
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t i = 0; i < 64; ++i) sum.add({0, i}, leaf(i));
    EXPECT_EQ(sum.sums().size(), 1U);
    sum.finish();
  }
  EXPECT_LE(sum.bytes(), 7 * 3 * 4);
}

TEST(SumTree, AddsNarrowLeavesUpInFp32) {
  SumTree sum;
  for (std::int64_t i = 0; i < 4; ++i) sum.add({0, i}, at::full({2}, i == 0 ? 256.0 : 0.25, at::kBFloat16));
  const at::Tensor all = sum.finish();
  EXPECT_EQ(all.scalar_type(), at::kFloat);
  EXPECT_EQ(all[0].item<float>(), 256.75F);
}

TEST(SumTree, TakesNoLeafOutOfOrder) {
  SumTree sum;
  sum.add({0, 2}, leaf(2));
  EXPECT_THROW(sum.add({0, 1}, leaf(1)), Error);
}

}  // namespace
}  // namespace qft::parallel
