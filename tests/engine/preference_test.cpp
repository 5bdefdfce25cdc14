// Compares the pair losses with TRL's and LLaMA-Factory's formulas, differentiated by autograd, in fp64.
#include "engine/preference.h"

#include "qft/core/error.h"

#include <cmath>
#include <map>
#include <string>

#include "support/vocabulary_parts.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr double kPairs = 7.0;  // pairs of the global batch; the micro-batch has three
constexpr std::int64_t kPairLabels = 12;
constexpr double kChosenLabels = 11.0;  // labels of the global batch's chosen answers

/// Three pairs. Sequence s has 3 + s tokens; the last 1 + s % 3 are labels.
model::MicroInput pairs() {
  std::vector<std::int32_t> tokens, bounds = {0}, labels;
  for (std::int32_t s = 0; s < 6; ++s) {
    for (std::int32_t t = 0; t < 3 + s; ++t) tokens.push_back(t);
    bounds.push_back(static_cast<std::int32_t>(tokens.size()));
    for (std::int32_t l = 1 + s % 3; l > 0; --l) labels.push_back(bounds.back() - l);
  }
  return model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU, std::vector<std::int32_t>{0, 2, 4, 6});
}

/// Formulas of TRL's dpo_loss() and cpo_loss(), and of odds_ratio_loss(), simpo_loss(), ld_alpha and pref_ftx in LLaMA-Factory's
/// CustomDPOTrainer.
struct Judge {
  at::Tensor chosen, rejected, reward_chosen, reward_rejected, sft, ratio, loss, nll;

  Judge(const std::string& name, const PairOptions& o, const at::Tensor& policy, const at::Tensor& reference,
        const model::MicroInput& in) {
    const bool mean = name == "ipo" || name == "orpo" || name == "simpo";
    const auto length = [&](std::size_t s) { return in.label_offsets[s + 1] - in.label_offsets[s]; };
    const auto of = [&](const at::Tensor& logprobs, std::size_t side, bool averaged, std::optional<double> alpha) {
      std::vector<at::Tensor> all;
      for (std::size_t s = side; s < 6; s += 2) {
        const auto begin = in.label_offsets[s], end = in.label_offsets[s + 1];
        const auto shared = begin + std::min(length(s - side), length(s - side + 1));
        const at::Tensor sum =
            logprobs.slice(0, begin, shared).sum() + alpha.value_or(1.0) * logprobs.slice(0, shared, end).sum();
        all.push_back(averaged ? sum / static_cast<double>(end - begin) : sum);
      }
      return at::stack(all);
    };
    chosen = of(policy, 0, mean, o.ld_alpha);
    rejected = of(policy, 1, mean, o.ld_alpha);
    at::Tensor c = chosen, r = rejected;
    if (reference.defined()) {
      c = chosen - of(reference, 0, mean, {});
      r = rejected - of(reference, 1, mean, {});
    }
    reward_chosen = o.beta * c;
    reward_rejected = o.beta * r;
    const at::Tensor logits = c - r;
    sft = -of(policy, 0, true, o.ld_alpha);
    nll = -of(policy, 0, false, {}).sum();
    if (name == "sigmoid" || name == "cpo")
      loss = -at::log_sigmoid(o.beta * logits) * (1 - o.label_smoothing) - at::log_sigmoid(-o.beta * logits) * o.label_smoothing;
    if (name == "hinge") loss = at::relu(1 - o.beta * logits);
    if (name == "ipo") loss = (logits - 1 / (2 * o.beta)).pow(2);
    if (name == "simpo") loss = -at::log_sigmoid(o.beta * (logits - o.gamma / o.beta));
    if (name == "orpo") {
      ratio = -at::log_sigmoid(logits - (at::log1p(-at::exp(c)) - at::log1p(-at::exp(r))));
      loss = -c + o.beta * ratio;
    }
    loss = loss + o.ftx * sft;
  }
};

struct PairDraw {
  model::MicroInput in = pairs();
  at::Tensor policy = -at::randn({kPairLabels}, at::kDouble).abs() - 0.1;
  at::Tensor reference = -at::randn({kPairLabels}, at::kDouble).abs() - 0.1;
  at::Tensor rows = at::randn({1, kPairLabels}, at::kDouble);
  /// The log-probabilities in the form that the loss takes.
  parallel::Logprobs logprobs(const PairLoss& loss) const {
    return {policy, loss.reference ? parallel::sequence_sums(in, reference) : at::Tensor(), rows};
  }
};

std::map<std::string, double, std::less<>> named_totals() {
  return {{std::string(totals::kChosenLabels), kChosenLabels}, {std::string(totals::kReward), 0.0}};
}

void expect_formula(const PairLoss& loss, const PairOptions& options) {
  PairDraw draw;
  const at::Tensor leaf = draw.policy.detach().clone().requires_grad_();
  const Judge judge(std::string(loss.name), options, leaf, loss.reference ? draw.reference : at::Tensor(), draw.in);
  (judge.loss.sum() / kPairs + options.rpo_alpha * judge.nll / kChosenLabels).backward();

  const PreferenceLoss ours(loss, options, {.label_tokens = 12.0, .items = kPairs, .named = named_totals()});
  EXPECT_EQ(ours.kind(), parallel::ObjectiveKind::sequence_level);
  const at::Tensor grad = at::empty_like(draw.policy);
  const at::Tensor sums = ours.observe(draw.in, draw.logprobs(loss), grad);
  EXPECT_LE((grad - leaf.grad()).abs().max().item<double>(), 1e-13);
  ASSERT_EQ(sums.numel(), 1 + 2 * static_cast<std::int64_t>(ours.metrics().size()));
  EXPECT_NEAR(sums[0].item<double>() / ours.denominator(), judge.loss.sum().item<double>() / kPairs, 1e-13);

  const auto mean = [](const at::Tensor& values) { return values.detach().mean().item<double>(); };
  std::map<std::string_view, double> expected = {
      {"rewards/chosen", mean(judge.reward_chosen)},
      {"rewards/rejected", mean(judge.reward_rejected)},
      {"rewards/accuracies", mean(judge.reward_chosen.gt(judge.reward_rejected).to(at::kDouble))},
      {"rewards/margins", mean(judge.reward_chosen - judge.reward_rejected)},
      {"logps/chosen", mean(judge.chosen)},
      {"logps/rejected", mean(judge.rejected)}};
  if (loss.name == "orpo") expected.insert({{"sft_loss", mean(judge.sft)}, {"odds_ratio_loss", mean(judge.ratio)}});
  // Six labels on either side; the chosen answers have 1, 3 and 2.
  const auto labels_of = [&](const at::Tensor& values, std::int64_t s) {
    const auto& at = draw.in.label_offsets;
    return values.slice(0, at[static_cast<std::size_t>(s)], at[static_cast<std::size_t>(s) + 1]).sum().item<double>();
  };
  std::map<std::string_view, double> by_label = {{"logits/chosen", 0.0}, {"logits/rejected", 0.0}};
  for (std::int64_t s = 0; s < 6; ++s)
    by_label[s % 2 == 0 ? "logits/chosen" : "logits/rejected"] += labels_of(draw.rows[0], s) / 6.0;
  if (options.rpo_alpha > 0) by_label["nll_loss"] = judge.nll.item<double>() / 6.0;
  ASSERT_EQ(ours.metrics().size(), expected.size() + by_label.size());
  std::map<std::string, double> seen;
  for (std::size_t m = 0; m < ours.metrics().size(); ++m) {
    const auto at = static_cast<std::int64_t>(m);
    const std::string_view name = ours.metrics()[m];
    const bool of_labels = by_label.contains(name);
    const double count = of_labels ? 6.0 : 3.0;
    EXPECT_EQ(sums[2 + 2 * at].item<double>(), count) << name;
    seen[std::string(name)] = sums[1 + 2 * at].item<double>() / count;
    EXPECT_NEAR(seen[std::string(name)], (of_labels ? by_label : expected).at(name), 1e-13) << name;
  }
  EXPECT_NEAR(ours.summarise(seen), options.rpo_alpha * judge.nll.item<double>() / 6.0, 1e-13);
}

TEST(Preference, LossGradientAndMetricsAreTheFormulas) {
  for (const PairLoss& loss : pair_losses())
    for (const double beta : {0.3, 2.5})
      for (const double ftx : {0.0, 0.3})
        for (const std::optional<double> alpha : {std::optional<double>{}, {0.4}, {0.0}}) {
          SCOPED_TRACE(std::string(loss.name) + " beta " + std::to_string(beta));
          PairOptions options{.beta = beta, .gamma = 0.7, .ftx = ftx, .ld_alpha = alpha};
          expect_formula(loss, options);
          options.label_smoothing = 0.2;
          if (loss.name == "sigmoid" || loss.name == "cpo") expect_formula(loss, options);
          options.rpo_alpha = 0.6;
          options.ld_alpha.reset();
          expect_formula(loss, options);
        }
}

TEST(Preference, WithoutAGradientTheSumsAreTheSame) {
  for (const PairLoss& loss : pair_losses()) {
    const PairDraw draw;
    const PreferenceLoss ours(loss, {.ld_alpha = 0.5}, {12.0, kPairs});
    const at::Tensor with = ours.observe(draw.in, draw.logprobs(loss), at::empty_like(draw.policy));
    EXPECT_TRUE(ours.observe(draw.in, draw.logprobs(loss), {}).equal(with)) << loss.name;
  }
}

TEST(Preference, AnswersThatWereCutOffLeaveAllFinite) {
  const std::vector<std::int32_t> tokens(12, 1), bounds = {0, 3, 6, 9, 12}, labels = {4, 5, 7, 8};
  const auto in = model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU, std::vector<std::int32_t>{0, 2, 4});
  for (const PairLoss& loss : pair_losses()) {
    const at::Tensor logprobs = -at::randn({4}, at::kDouble).abs(), grad = at::empty_like(logprobs);
    const PreferenceLoss ours(loss, {.ftx = 0.1, .ld_alpha = 0.5}, {4.0, 2.0});
    const at::Tensor sums =
        ours.observe(in, {logprobs, loss.reference ? logprobs * 2 : at::Tensor(), logprobs.view({1, 4})}, grad);
    EXPECT_TRUE(sums.isfinite().all().item<bool>()) << loss.name;
    EXPECT_TRUE(grad.isfinite().all().item<bool>()) << loss.name;
  }
}

/// Rows of logits in a narrow type, more than are widened at a time.
TEST(Preference, KeepsTheMeanOfEachRowOfLogits) {
  const at::Tensor logits = at::randn({11, 37}, at::kDouble).to(at::kBFloat16), values = at::empty({1, 11}, at::kFloat);
  const PreferenceLoss loss(pair_loss("simpo"), {}, {2.0, 2.0});
  EXPECT_FALSE(loss.read_rows({}, {0, logits, at::empty({11}, at::kInt), {}, {}}, values, {}).defined());
  EXPECT_LE((values[0] - logits.to(at::kFloat).mean(1)).abs().max().item<double>(), 1e-6);
  test::on_parts({0, 20, 30, 37}, [&](const ops::VocabularyPart& part, const test::Tokens& own) {
    const at::Tensor means = at::empty({1, 11}, at::kFloat), columns = logits.narrow(1, own.first, own.count);
    loss.read_rows({}, {0, columns, at::empty({11}, at::kInt), {}, {}, part}, means, {});
    EXPECT_LE((means - values).abs().max().item<double>(), 1e-6) << "part " << part.part;
  });
}

TEST(Preference, RefusesWhatIsNoPairAndAReferenceThatIsMissing) {
  const std::vector<std::int32_t> tokens(6, 1), bounds = {0, 3, 6}, labels = {1, 4};
  const auto single = model::MicroInput::build(tokens, bounds, labels, {}, at::kCPU);
  const at::Tensor logprobs = at::randn({2}, at::kDouble);
  EXPECT_THROW(PreferenceLoss(pair_loss("simpo"), {}, {2.0, 2.0}).observe(single, {logprobs, {}}, {}), Error);
  const PairDraw draw;
  EXPECT_THROW(PreferenceLoss(pair_loss("sigmoid"), {}, {2.0, 2.0}).observe(draw.in, {draw.policy, {}}, {}), Error);
  EXPECT_THROW(PreferenceLoss(pair_loss("simpo"), {}, {2.0, 2.0})
                   .observe(draw.in, {draw.policy, parallel::sequence_sums(draw.in, draw.reference)}, {}),
               Error);
  EXPECT_THROW(pair_loss("none"), Error);
}

}  // namespace
}  // namespace qft::engine
