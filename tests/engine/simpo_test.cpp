// SimPO against LLaMA-Factory's formula as autograd differentiates it, in fp64.
#include "engine/simpo.h"

#include "qft/core/error.h"

#include <cmath>
#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr double kBeta = 2.5, kGamma = 0.7, kFtx = 0.3, kPairs = 7.0;  // of the global batch, of which the micro-batch has three

/// Three pairs; sequence s has 3 + s tokens, of which the last 1 + s % 3 are labels.
model::MicroInput pairs() {
  std::vector<std::int32_t> tokens, bounds = {0}, labels;
  for (std::int32_t s = 0; s < 6; ++s) {
    for (std::int32_t t = 0; t < 3 + s; ++t) tokens.push_back(t);
    bounds.push_back(static_cast<std::int32_t>(tokens.size()));
    for (std::int32_t l = 1 + s % 3; l > 0; --l) labels.push_back(bounds.back() - l);
  }
  return model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU, std::vector<std::int32_t>{0, 2, 4, 6});
}

/// simpo_loss() and pref_ftx of LLaMA-Factory's CustomDPOTrainer with the averages that concatenated_forward() hands it.
struct Judge {
  at::Tensor chosen, rejected, loss;
  explicit Judge(const at::Tensor& logprobs, const model::MicroInput& in) {
    std::vector<at::Tensor> sides[2];
    for (std::size_t s = 0; s < 6; ++s) {
      const auto begin = in.label_offsets[s], end = in.label_offsets[s + 1];
      sides[s % 2].push_back(logprobs.slice(0, begin, end).sum() / static_cast<double>(end - begin));
    }
    chosen = at::stack(sides[0]);
    rejected = at::stack(sides[1]);
    loss = -at::log_sigmoid(kBeta * (chosen - rejected - kGamma / kBeta)) + kFtx * -chosen;
  }
};

TEST(Simpo, LossGradientAndMetricsAreTheFormulas) {
  const auto in = pairs();
  ASSERT_EQ(in.label_offsets, (std::vector<std::int32_t>{0, 1, 3, 6, 7, 9, 12}));
  const at::Tensor logprobs = (at::randn({12}, at::kDouble) - 1.0).requires_grad_();
  const Judge judge(logprobs, in);
  (judge.loss.sum() / kPairs).backward();

  const SimpoLoss simpo(kBeta, kGamma, kFtx, {12.0, kPairs});
  EXPECT_EQ(simpo.kind(), parallel::ObjectiveKind::sequence_level);
  const at::Tensor values = logprobs.detach(), grad = at::empty_like(values);
  const at::Tensor sums = simpo.observe(in, values, grad);
  EXPECT_LE((grad - logprobs.grad()).abs().max().item<double>(), 1e-14);
  ASSERT_EQ(sums.numel(), 1 + 2 * static_cast<std::int64_t>(simpo.metrics().size()));
  EXPECT_NEAR(sums[0].item<double>() / simpo.denominator(), judge.loss.sum().item<double>() / kPairs, 1e-14);

  const at::Tensor chosen = judge.chosen.detach(), rejected = judge.rejected.detach();
  const std::map<std::string_view, double> expected = {
      {"rewards/chosen", (kBeta * chosen).mean().item<double>()},
      {"rewards/rejected", (kBeta * rejected).mean().item<double>()},
      {"rewards/accuracies", chosen.gt(rejected).to(at::kDouble).mean().item<double>()},
      {"rewards/margins", (kBeta * (chosen - rejected)).mean().item<double>()},
      {"logps/chosen", chosen.mean().item<double>()},
      {"logps/rejected", rejected.mean().item<double>()}};
  ASSERT_EQ(simpo.metrics().size(), expected.size());
  for (std::size_t m = 0; m < simpo.metrics().size(); ++m) {
    const auto at = static_cast<std::int64_t>(m);
    EXPECT_EQ(sums[2 + 2 * at].item<double>(), 3.0);
    EXPECT_NEAR(sums[1 + 2 * at].item<double>() / 3.0, expected.at(simpo.metrics()[m]), 1e-14) << simpo.metrics()[m];
  }
}

TEST(Simpo, WithoutAGradientTheSumsAreTheSame) {
  const auto in = pairs();
  const at::Tensor logprobs = at::randn({12}, at::kDouble);
  const SimpoLoss simpo(kBeta, kGamma, kFtx, {12.0, kPairs});
  EXPECT_TRUE(simpo.observe(in, logprobs, {}).equal(simpo.observe(in, logprobs, at::empty_like(logprobs))));
}

TEST(Simpo, RefusesItemsThatAreNoPairs) {
  const std::vector<std::int32_t> tokens(6, 1), bounds = {0, 3, 6}, labels = {1, 4};
  const auto in = model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU);
  const at::Tensor logprobs = at::randn({2}, at::kDouble);
  EXPECT_THROW(SimpoLoss(1.0, 0.5, 0.0, {2.0, 2.0}).observe(in, logprobs, {}), Error);
}

}  // namespace
}  // namespace qft::engine
