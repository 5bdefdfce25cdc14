// Compares the reward models' loss with autograd, in fp64.
#include "engine/reward.h"

#include "qft/core/error.h"

#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

/// Totals of the global batch; the micro-batch has three pairs.
const parallel::BatchTotals kRewardTotals{.items = 7};

/// Items of `each` sequences; six sequences in all.
model::MicroInput sequences(std::int32_t each) {
  const std::vector<std::int32_t> tokens(12), bounds = {0, 2, 4, 6, 8, 10, 12};
  std::vector<std::int32_t> items;
  for (std::int32_t i = 0; i <= 6; i += each) items.push_back(i);
  return model::MicroInput::build(tokens, bounds, {}, {}, at::kCPU, items);
}

TEST(Reward, LossGradientsAndMetricsAreThoseOfAutograd) {
  const RewardLoss loss(kRewardTotals);
  EXPECT_EQ(loss.kind(), parallel::ObjectiveKind::sequence_level);
  EXPECT_EQ(loss.denominator(), 7.0);
  const auto in = sequences(2);
  const at::Tensor scores = at::randn({6}, at::kDouble).requires_grad_(true);
  const at::Tensor judged = -at::log_sigmoid(scores.view({3, 2}).select(1, 0) - scores.view({3, 2}).select(1, 1)).sum();
  (judged / kRewardTotals.items).backward();

  const at::Tensor values = scores.detach(), grad = at::empty_like(values);
  const at::Tensor sums = loss.observe(in, {values, {}}, grad);
  EXPECT_NEAR(sums[0].item<double>(), judged.item<double>(), 1e-12);
  EXPECT_LT((grad - scores.grad()).abs().max().item<double>(), 1e-14);
  const at::Tensor pairs = values.view({3, 2}), margins = pairs.select(1, 0) - pairs.select(1, 1);
  const std::map<std::string_view, double> expected = {{"accuracy", margins.gt(0).sum().item<double>()},
                                                       {"rewards/chosen", pairs.select(1, 0).sum().item<double>()},
                                                       {"rewards/rejected", pairs.select(1, 1).sum().item<double>()},
                                                       {"rewards/margins", margins.sum().item<double>()}};
  ASSERT_EQ(loss.metrics().size(), expected.size());
  for (std::size_t m = 0; m < loss.metrics().size(); ++m) {
    EXPECT_NEAR(sums[static_cast<std::int64_t>(1 + 2 * m)].item<double>(), expected.at(loss.metrics()[m]), 1e-12)
        << loss.metrics()[m];
    EXPECT_EQ(sums[static_cast<std::int64_t>(2 + 2 * m)].item<double>(), 3.0);
  }
  EXPECT_TRUE(loss.observe(in, {values, {}}, {}).equal(sums));
}

TEST(Reward, FarScoresStayFiniteAndEqualOnesAreNoSuccess) {
  const RewardLoss loss({.items = 3});
  const at::Tensor scores = at::tensor({1e4, -1e4, -1e4, 1e4, 2.0, 2.0}, at::kDouble), grad = at::empty_like(scores);
  const at::Tensor sums = loss.observe(sequences(2), {scores, {}}, grad);
  EXPECT_TRUE(sums.isfinite().all().item<bool>());
  EXPECT_NEAR(sums[0].item<double>(), 2e4 + std::log(2.0), 1e-9);
  EXPECT_EQ(sums[1].item<double>(), 1.0);  // only the first pair
  EXPECT_NEAR(grad[2].item<double>(), -1.0 / 3, 1e-15);
  EXPECT_EQ(grad[0].item<double>(), 0.0);
}

TEST(Reward, WhatIsNoPairIsRefused) {
  const at::Tensor scores = at::randn({6}, at::kDouble);
  EXPECT_THROW(RewardLoss(kRewardTotals).observe(sequences(1), {scores, {}}, {}), Error);
}

}  // namespace
}  // namespace qft::engine
