// Compares KTO with TRL's kto_loss() and LLaMA-Factory's pref_ftx, differentiated by autograd, in fp64.
#include "engine/kto.h"

#include "qft/core/error.h"
#include "qft/encode/item_columns.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr std::int64_t kAnswerLabels = 7;
const std::vector<double> kDesirable = {1, 0, 0, 1};
constexpr double kItems = 9, kDesirableItems = 3, kKl = 0.4;
/// Totals of the global batch; the micro-batch has four answers.
const parallel::BatchTotals kKtoTotals{
    .label_tokens = 20,
    .items = kItems,
    .named = {{std::string(totals::kDesirable), kDesirableItems}, {std::string(totals::kKl), kKl}}};

/// Four answers. Sequence s has 4 + s tokens; the last 1 + s % 3 are labels.
model::MicroInput answers() {
  std::vector<std::int32_t> tokens, bounds = {0}, labels;
  for (std::int32_t s = 0; s < 4; ++s) {
    for (std::int32_t t = 0; t < 4 + s; ++t) tokens.push_back(t);
    bounds.push_back(static_cast<std::int32_t>(tokens.size()));
    for (std::int32_t l = 1 + s % 3; l > 0; --l) labels.push_back(bounds.back() - l);
  }
  auto in = model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU);
  in.set_columns({{std::string(columns::kDesirable), {IndexSpace::item, kDesirable}}});
  return in;
}

struct AnswerDraw {
  model::MicroInput in = answers();
  at::Tensor policy = -at::randn({kAnswerLabels}, at::kDouble).abs();
  at::Tensor reference = -at::randn({kAnswerLabels}, at::kDouble).abs();
};

/// The sum of the micro-batch's losses.
at::Tensor judged(const KtoOptions& o, const at::Tensor& policy, const AnswerDraw& draw) {
  at::Tensor loss = at::zeros({}, at::kDouble);
  const double n = kItems, desirable = kDesirableItems;
  for (std::size_t s = 0; s < kDesirable.size(); ++s) {
    const auto begin = draw.in.label_offsets[s], end = draw.in.label_offsets[s + 1];
    const at::Tensor sum = policy.slice(0, begin, end).sum();
    const at::Tensor ratio = sum - draw.reference.slice(0, begin, end).sum();
    if (kDesirable[s] > 0) {
      loss = loss + o.chosen_weight * (1 - at::sigmoid(o.beta * (ratio - kKl)));
      // losses.mean() + ftx * mean(sft of the desirable) / desirable * n; the mean over n is taken here
      loss = loss + n * o.ftx * (-sum / static_cast<double>(end - begin)) / desirable / desirable * n;
    } else {
      loss = loss + o.rejected_weight * (1 - at::sigmoid(o.beta * (kKl - ratio)));
    }
  }
  return loss;
}

TEST(Kto, LossGradientAndMetricsAreTheFormulas) {
  for (const KtoOptions options :
       {KtoOptions{}, KtoOptions{.beta = 0.7, .ftx = 0.3, .chosen_weight = 1.5, .rejected_weight = 0.5}}) {
    const AnswerDraw draw;
    const at::Tensor leaf = draw.policy.clone().requires_grad_();
    const at::Tensor expected = judged(options, leaf, draw);
    (expected / kItems).backward();
    const KtoLoss ours(options, kKtoTotals);
    const at::Tensor grad = at::empty_like(draw.policy);
    const at::Tensor sums = ours.observe(draw.in, {draw.policy, parallel::sequence_sums(draw.in, draw.reference)}, grad);
    EXPECT_LE((grad - leaf.grad()).abs().max().item<double>(), 1e-14);
    EXPECT_NEAR(sums[0].item<double>(), expected.item<double>(), 1e-13);
    EXPECT_TRUE(ours.observe(draw.in, {draw.policy, parallel::sequence_sums(draw.in, draw.reference)}, {}).equal(sums))
        << "without a gradient";
  }
}

TEST(Kto, MetricsAreMeansOverTheAnswersOfTheirKind) {
  const AnswerDraw draw;
  const KtoLoss ours({.beta = 0.5}, kKtoTotals);
  const at::Tensor sums = ours.observe(draw.in, {draw.policy, parallel::sequence_sums(draw.in, draw.reference)}, {});
  std::map<std::string, double> seen;
  for (std::size_t m = 0; m < ours.metrics().size(); ++m) {
    const auto at = static_cast<std::int64_t>(m);
    EXPECT_EQ(sums[2 + 2 * at].item<double>(), ours.metrics()[m] == "kl" ? 4.0 : 2.0);
    seen[std::string(ours.metrics()[m])] = (sums[1 + 2 * at] / sums[2 + 2 * at]).item<double>();
  }
  const auto sum = [&](const at::Tensor& values, std::size_t s) {
    return values.slice(0, draw.in.label_offsets[s], draw.in.label_offsets[s + 1]).sum().item<double>();
  };
  const double chosen = (sum(draw.policy, 0) + sum(draw.policy, 3)) / 2,
               rejected = (sum(draw.policy, 1) + sum(draw.policy, 2)) / 2;
  EXPECT_NEAR(seen["logps/chosen"], chosen, 1e-13);
  EXPECT_NEAR(seen["logps/rejected"], rejected, 1e-13);
  EXPECT_NEAR(seen["rewards/chosen"], 0.5 * (chosen - (sum(draw.reference, 0) + sum(draw.reference, 3)) / 2), 1e-13);
  EXPECT_NEAR(seen["kl"], kKl, 1e-15);
  ours.summarise(seen);
  EXPECT_NEAR(seen.at("rewards/margins"), seen["rewards/chosen"] - seen["rewards/rejected"], 1e-15);
}

/// The text of the error that `run` throws.
template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Kto, NamesTheColumnAndTheTotalThatAreMissing) {
  AnswerDraw draw;
  const parallel::Logprobs logprobs{draw.policy, parallel::sequence_sums(draw.in, draw.reference)};
  const KtoLoss ours({}, kKtoTotals);
  EXPECT_THROW(ours.observe(draw.in, {draw.policy, {}}, {}), Error);
  const auto without_kl = [&] { KtoLoss({}, {.items = kItems}).observe(draw.in, logprobs, {}); };
  EXPECT_NE(error_of(without_kl).find("the total 'kl'"), std::string::npos) << error_of(without_kl);
  EXPECT_THROW(draw.in.set_columns({{std::string(columns::kDesirable), {IndexSpace::item, {1, 0}}}}), Error)
      << "two of four items";
  draw.in.columns = {};
  const auto without_column = [&] { ours.observe(draw.in, logprobs, {}); };
  EXPECT_NE(error_of(without_column).find("lacks the column 'desirable'"), std::string::npos) << error_of(without_column);
}

}  // namespace
}  // namespace qft::engine
