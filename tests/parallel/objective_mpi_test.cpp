// Objectives of whole sequences: the same numbers on any number of ranks, and gradients that autograd confirms.
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/engine/objectives.h"

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "engine/classification.h"
#include "engine/kto.h"
#include "engine/preference.h"
#include "engine/reward.h"
#include "engine/token_losses.h"
#include "equivalence.h"
#include "support/world.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

constexpr std::string_view kMetrics[] = {"labels", "long"};

/// Cross-entropy from the sums of sequences: must equal TokenMeanLoss, which computes logits once.
class SummedCrossEntropy final : public SequenceObjective {
 public:
  explicit SummedCrossEntropy(const BatchTotals& totals) : denominator_(totals.label_tokens) {}
  static std::unique_ptr<Objective> make(const BatchTotals& totals) { return std::make_unique<SummedCrossEntropy>(totals); }
  double denominator() const override { return denominator_; }
  std::span<const std::string_view> metrics() const override { return kMetrics; }

 protected:
  /// Adds metrics: the mean number of labels per sequence, and one that counts only sequences with ten or more labels.
  at::Tensor observe_sequences(const model::MicroInput&, const SequenceSums& sums, const at::Tensor& grad) const override {
    if (grad.defined()) grad.fill_(-1.0 / denominator_);
    const at::Tensor &counts = sums.counts, tall = counts.ge(10).to(at::kDouble);
    return at::stack({sums.policy.sum().neg(), counts.sum(), at::ones_like(counts).sum(), (counts * tall).sum(), tall.sum()});
  }

 private:
  double denominator_;
};

Case sequence_case(Case c) {
  c.objective = SummedCrossEntropy::make;
  return c;
}

TEST(SequenceLevel, TheHeadsBackwardOnItsOwnGivesTheGradientsOfBothAtOnce) {
  for (const bool lora : {false, true}) {
    const Reference want = reference({.tied = !lora, .lora = lora});
    for (const char* strategy : {"ddp", "zero2", "zero3"})
      for (const bool offload : {false, true}) {
        const Case c{.tied = !lora,
                     .lora = lora,
                     .recompute = offload,
                     .group = 2,
                     .strategy = strategy,
                     .offload = {.activations = offload},
                     .loss_scale = 64.0};
        SCOPED_TRACE(name_of(c, 2));
        expect_same(sequence_case(c), 2, want, 1e-10, 1e-7);
      }
  }
}

TEST(Metrics, AreMeansOverWhatTheyCountOnAllRanks) {
  double labels = 0, sequences = 0, tall = 0, tall_labels = 0;
  for (const auto& s : global_batch(0)) {
    const auto n = static_cast<double>(s.labels.size());
    labels += n;
    ++sequences;
    if (n < 10) continue;
    ++tall;
    tall_labels += n;
  }
  ASSERT_GT(tall, 0);
  for (const bool deterministic : {false, true}) {
    TinyRun run(sequence_case({.deterministic = deterministic}), world());
    const auto result = run.step(0, 1);
    EXPECT_EQ(result.metrics, (std::map<std::string, double>{{"labels", labels / sequences}, {"long", tall_labels / tall}}));
  }
}

TEST(Metrics, TokenMeanHasNone) {
  TinyRun run({}, world());
  EXPECT_TRUE(run.step(0, 1).metrics.empty());
}

void expect_near(const StepResult& got, const StepResult& want, double tolerance) {
  EXPECT_NEAR(got.loss, want.loss, tolerance * want.loss);
  EXPECT_NEAR(got.grad_norm, want.grad_norm, 10 * tolerance * want.grad_norm);
  EXPECT_EQ(got.metrics.size(), want.metrics.size());
  for (const auto& [name, value] : want.metrics) EXPECT_NEAR(got.metrics.at(name), value, 10 * tolerance) << name;
}

constexpr int kPacks[] = {2, 1, 9};
constexpr const char* kAll[] = {"ddp", "zero1", "zero2", "zero3", "hsdp"};

/// Returns whether to try this combination: the packs are distributed over the numbers of ranks. A simulated device is slow, so
/// there each strategy gets one combination of each.
bool is_tried(std::size_t strategy, int group, std::size_t pack, bool recompute) {
  if (device_under_test().is_cpu()) return !is_another_counts(kAll[strategy], strategy + pack + (group > 1) + recompute);
  return pack == strategy % 3 && (group > 1) == (strategy % 2 == 0) && recompute == (strategy % 4 < 2);
}

/// Runs three steps on one rank on a CPU, and on all ranks under every strategy and order. Returns the steps of one rank.
std::vector<StepResult> expect_alike_everywhere(const Case& plain) {
  const auto self = comm::make_self_communicator();
  TinyRun expected(plain, *self, c10::kCPU);
  std::vector<StepResult> want;
  for (int s = 0; s < 3; ++s) want.push_back(expected.step(s, 1));
  const auto b = expected.weights();
  for (std::size_t s = 0; s < std::size(kAll); ++s)
    for (const int group : {1, 3})
      for (std::size_t p = 0; p < std::size(kPacks); ++p)
        for (const bool recompute : {false, true}) {
          if (!is_tried(s, group, p, recompute)) continue;
          const char* strategy = kAll[s];
          const int pack = kPacks[p];
          Case c = plain;
          c.strategy = strategy;
          c.hsdp_group = hsdp_group();
          c.group = group;
          c.recompute = recompute;
          c.offload.activations = recompute && group > 1;
          c.loss_scale = pack == 9 ? 64.0 : 1.0;
          SCOPED_TRACE(fmt::format("{} LoRA {} group {} pack {} recompute {}", strategy, c.lora, group, pack, recompute));
          TinyRun got(c, world());
          for (int step = 0; step < 3; ++step) expect_near(got.step(step, pack), want[static_cast<std::size_t>(step)], 1e-10);
          const auto a = got.weights();
          EXPECT_EQ(a.size(), b.size());
          for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) EXPECT_NEAR(a[i], b[i], 1e-7) << i;
        }
  return want;
}

/// Sums in the order of micro-batches. Returns the last step's result.
StepResult expect_bits_of_one_rank(Case c, int steps, int pack) {
  c.precision = optim::Precision::bf16();
  c.deterministic = true;
  const auto self = comm::make_self_communicator();
  TinyRun one(c, *self), ours(c, world());
  StepResult got;
  for (int s = 0; s < steps; ++s) {
    const auto want = one.step(s, pack);
    got = ours.step(s, pack);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.metrics, want.metrics);
    EXPECT_EQ(got.grad_norm, want.grad_norm);
  }
  EXPECT_EQ(ours.weights(), one.weights());
  return got;
}

/// The objective that each stage has without further keys. Those of documents read columns of sources: batch_vectors_mpi_test
/// and the parity test of embedding models and rerankers run them.
TEST(EachStage, IsTheSameUnderEveryStrategyAndOrder) {
  std::set<const engine::ObjectiveRow*> tried;
  for (const config::Stage& stage : config::stages()) {
    if (stage.limits != nullptr) continue;
    config::RunConfig run;
    run.finetuning.stage = stage.name;
    if (stage.classifies()) run.finetuning.num_labels = 3;
    const engine::ObjectiveRow& row = engine::objective_of(run);
    if (!tried.insert(&row).second) continue;
    for (const bool lora : {false, true}) {
      if (row.reads_reference() && !lora) continue;  // the reference is the policy without its adapter
      SCOPED_TRACE(fmt::format("stage {}", stage.name));
      const Case c{.tied = lora,
                   .lora = lora,
                   .item_sequences = stage.has_pairs() ? 2 : 1,
                   .reference = row.reads_reference(),
                   .reward = stage.head == config::HeadKind::value,
                   .labels = stage.classifies() ? 3 : 0,
                   .objective = [&](const BatchTotals& totals) { return row.make(run, totals); }};
      EXPECT_GT(std::abs(expect_alike_everywhere(c)[0].loss), 1e-3);
    }
  }
}

TEST(SequenceLevel, InMicroBatchOrderTheBitsOfOneRank) {
  for (const int pack : {1, 2}) expect_bits_of_one_rank(sequence_case({.item_sequences = 2}), 3, pack);
}

std::unique_ptr<Objective> dft(const BatchTotals& totals) {
  return std::make_unique<engine::WeightedTokenLoss>(engine::token_loss("dft"), engine::TokenLossOptions{}, totals);
}

std::unique_ptr<Objective> eaft(const BatchTotals& totals) {
  return std::make_unique<engine::WeightedTokenLoss>(engine::token_loss("eaft"), engine::TokenLossOptions{0.5}, totals);
}

std::unique_ptr<Objective> asft(const BatchTotals& totals) {
  return std::make_unique<engine::WeightedTokenLoss>(engine::token_loss("asft"), engine::TokenLossOptions{.asft_alpha = 0.5},
                                                     totals);
}

/// Label weights from the data give the same numbers under every strategy, order and division, also for losses that weigh by
/// logits.
TEST(LabelWeights, TrainAlikeUnderEveryStrategyAndOrder) {
  const auto want = expect_alike_everywhere({.weighted = true});
  double weights = 0, labels = 0;
  for (const auto& s : global_batch(0))
    for (const int p : s.labels) weights += 0.5 + s.tokens[static_cast<std::size_t>(p)] % 4 * 0.5, ++labels;
  EXPECT_NEAR(want[0].metrics.at("token/weight"), weights / labels, 1e-12);
  const auto self = comm::make_self_communicator();
  TinyRun plain({}, *self, c10::kCPU);
  const auto unweighted = plain.step(0, 1);
  EXPECT_NEAR(want[0].metrics.at("token/nll"), unweighted.loss, 1e-10);
  EXPECT_GT(std::abs(want[0].loss - unweighted.loss), 1e-2);
  expect_alike_everywhere({.weighted = true, .objective = dft});
  expect_alike_everywhere({.lora = true, .reference = true, .weighted = true, .objective = asft});
}

TEST(LabelWeights, InMicroBatchOrderTheBitsOfOneRank) {
  EXPECT_EQ(expect_bits_of_one_rank({.weighted = true}, 2, 2).metrics.size(), 2U);
}

/// Weights computed from logits do not depend on the rank that computes them, nor on the loss scale.
TEST(WeightedTokens, TrainAlikeUnderEveryStrategy) {
  const auto self = comm::make_self_communicator();
  for (const auto objective : {dft, eaft, asft})
    for (const bool lora : {false, true}) {
      const bool reference = objective == asft;
      if (reference && !lora) continue;
      TinyRun expected({.lora = lora, .reference = reference, .objective = objective}, *self, c10::kCPU);
      TinyRun plain({.lora = lora}, *self, c10::kCPU);
      std::vector<StepResult> want;
      for (int s = 0; s < 3; ++s) want.push_back(expected.step(s, 1));
      const auto unweighted = plain.step(0, 1);
      EXPECT_NEAR(want[0].metrics.at("token/nll"), unweighted.loss, 1e-10);
      EXPECT_GT(std::abs(want[0].loss - unweighted.loss), 1e-2);
      for (const char* strategy : {"ddp", "zero2", "zero3"})
        for (const int group : {1, 2}) {
          SCOPED_TRACE(fmt::format("{} LoRA {} group {}", strategy, lora, group));
          TinyRun got({.lora = lora,
                       .recompute = lora,
                       .group = group,
                       .strategy = strategy,
                       .loss_scale = 64.0,
                       .reference = reference,
                       .objective = objective},
                      world());
          for (int s = 0; s < 3; ++s) {
            const auto is = got.step(s, 2);
            const auto& as = want[static_cast<std::size_t>(s)];
            EXPECT_NEAR(is.loss, as.loss, 1e-10 * as.loss);
            EXPECT_NEAR(is.grad_norm, as.grad_norm, 1e-9 * as.grad_norm);
            for (const auto& [name, value] : as.metrics) EXPECT_NEAR(is.metrics.at(name), value, 1e-9) << name;
          }
          const auto a = got.weights(), b = expected.weights();
          for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-7) << i;
        }
    }
}

TEST(WeightedTokens, InMicroBatchOrderTheBitsOfOneRank) {
  expect_bits_of_one_rank({.lora = true, .reference = true, .objective = asft}, 2, 2);
}

std::unique_ptr<Objective> simpo(const BatchTotals& totals) {
  return std::make_unique<engine::PreferenceLoss>(
      engine::pair_loss("simpo"), engine::PairOptions{.beta = 2.0, .gamma = 1.0, .ftx = 0.1, .rpo_alpha = 0.4}, totals);
}

/// Pairs train the same on one rank and on all ranks, with any sharding.
TEST(Simpo, TwentyStepsUnderZero3AreThoseOfOneRank) {
  const auto self = comm::make_self_communicator();
  for (const bool lora : {false, true}) {
    Case c{.lora = lora, .group = 2, .item_sequences = 2, .objective = simpo};
    TinyRun expected(c, *self);
    c.strategy = "zero3";
    c.recompute = lora;
    TinyRun got(c, world());
    double first = 0.0, last = 0.0;
    for (int s = 0; s < 20; ++s) {
      SCOPED_TRACE(s);
      // The same nine pairs repeat, so they are learned.
      const auto want = expected.step(0, 1), is = got.step(0, 1);
      EXPECT_NEAR(is.loss, want.loss, 1e-10 * want.loss);
      EXPECT_NEAR(is.grad_norm, want.grad_norm, 1e-9 * want.grad_norm);
      ASSERT_EQ(is.metrics.size(), 9U);
      for (const auto& [name, value] : want.metrics) EXPECT_NEAR(is.metrics.at(name), value, 1e-9) << name;
      (s == 0 ? first : last) = is.metrics.at("rewards/margins");
    }
    EXPECT_GT(last, first + 1.0);
  }
}

std::unique_ptr<Objective> dpo(const BatchTotals& totals) {
  return std::make_unique<engine::PreferenceLoss>(engine::pair_loss("sigmoid"),
                                                  engine::PairOptions{.beta = 0.5, .ftx = 0.1, .ld_alpha = 0.7}, totals);
}

/// LoRA's B is not zero here, so the reference differs from the policy at once.
Case dpo_case() {
  return {.lora = true, .item_sequences = 2, .reference = true, .objective = dpo};
}

TEST(Reference, IsThePolicyWithoutItsAdapterUnderEveryStrategyAndOrder) {
  EXPECT_GT(std::abs(expect_alike_everywhere(dpo_case())[0].metrics.at("rewards/chosen")), 1e-3);
}

TEST(Reference, InMicroBatchOrderTheBitsOfOneRank) {
  expect_bits_of_one_rank(dpo_case(), 3, 2);
}

/// With a zero adapter the policy equals its reference: no reward, and -log sigmoid(0) for each pair.
TEST(Reference, OfAnAdapterThatIsZeroIsThePolicy) {
  Case c = dpo_case();
  c.objective = [](const BatchTotals& totals) -> std::unique_ptr<Objective> {
    return std::make_unique<engine::PreferenceLoss>(engine::pair_loss("sigmoid"), engine::PairOptions{}, totals);
  };
  TinyRun run(c, world());
  for (int u = 0; u < run.spec().num_units(); ++u)
    for (const auto& p : run.spec().units[static_cast<std::size_t>(u)].params)
      if (p.role == model::Role::lora_b) run.instance().param(u, p).values.zero_();
  run.instance().publish();
  const auto result = run.step(0, 2);
  EXPECT_EQ(result.metrics.at("rewards/chosen"), 0.0);
  EXPECT_EQ(result.metrics.at("rewards/accuracies"), 0.0);
  EXPECT_DOUBLE_EQ(result.loss, std::log(2.0));
}

/// The reference's routers do not affect the policy's losses and metrics.
TEST(Reference, LeavesTheRoutersOfThePolicyAlone) {
  Case c = dpo_case();
  c.model_type = "qwen2_moe";
  const auto self = comm::make_self_communicator();
  TinyRun one(c, *self);
  c.strategy = "zero3";
  c.group = 2;
  TinyRun got(c, world());
  Case plain = dpo_case();
  plain.model_type = "qwen2_moe";
  plain.reference = false;
  plain.objective = simpo;
  TinyRun without(plain, *self);
  const auto want = one.step(0, 1), is = got.step(0, 2), alone = without.step(0, 1);
  expect_near(is, want, 1e-10);
  for (const char* name : {"router/aux_loss", "router/entropy", "router/load_max"})
    EXPECT_NEAR(want.metrics.at(name), alone.metrics.at(name), 1e-12) << name;
}

std::unique_ptr<Objective> reward(const BatchTotals& totals) {
  return std::make_unique<engine::RewardLoss>(totals);
}

/// A value head at the last row of each sequence; with LoRA it trains together with the adapter.
Case reward_case(bool lora) {
  return {.tied = lora, .lora = lora, .item_sequences = 2, .reward = true, .objective = reward};
}

TEST(RewardModel, InMicroBatchOrderTheBitsOfOneRank) {
  expect_bits_of_one_rank(reward_case(true), 3, 2);
}

TEST(RewardModel, LearnsItsPairs) {
  TinyRun run(reward_case(true), world());
  StepResult last;
  for (int s = 0; s < 12; ++s) last = run.step(0, 2);
  EXPECT_EQ(last.metrics.at("accuracy"), 1.0);
}

/// The score is the difference of two logits at the last row of each sequence. Without LoRA both rows of the head train.
TEST(TokenDifference, IsTheSameUnderEveryStrategyAndOrder) {
  for (const bool lora : {false, true})
    for (const bool tied : {false, true}) {
      if (lora && !tied) continue;
      const Case c{.tied = tied, .lora = lora, .item_sequences = 2, .token_difference = true, .objective = reward};
      EXPECT_GT(std::abs(expect_alike_everywhere(c)[0].metrics.at("rewards/margins")), 1e-3);
    }
}

std::unique_ptr<Objective> classification(const BatchTotals& totals) {
  return std::make_unique<engine::ClassificationLoss>(engine::problem("single_label_classification"), 3, totals);
}

/// A head with three values at the last row of each text; the label is a class index.
Case classification_case(bool lora) {
  return {.tied = lora, .lora = lora, .labels = 3, .objective = classification};
}

TEST(Classifier, InMicroBatchOrderTheBitsOfOneRank) {
  expect_bits_of_one_rank(classification_case(true), 3, 2);
}

TEST(Classifier, LearnsItsLabels) {
  TinyRun run(classification_case(false), world());
  StepResult last;
  for (int s = 0; s < 12; ++s) last = run.step(0, 2);
  EXPECT_EQ(last.metrics.at("acc"), 1.0);
}

/// The reference adds no traffic: compares the bytes that a step moves, by collective and type.
TEST(Reference, AddsNoByteToTheWire) {
  const auto bytes_of = [](const Case& c) {
    TinyRun run(c, world());
    run.step(0, 1);
    const auto groups = {&run.layout().groups().slices(), &run.layout().groups().copies(), &world()};
    for (comm::Communicator* group : groups) group->reset_counters();
    run.step(1, 1);
    std::vector<std::uint64_t> all;
    for (const comm::Communicator* group : groups)
      all.insert(all.end(), group->counters().bytes.begin(), group->counters().bytes.end());
    return all;
  };
  for (const char* strategy : {"ddp", "zero2", "zero3", "hsdp"})
    for (const int group : {1, 3}) {
      Case c = dpo_case();
      c.strategy = strategy;
      c.hsdp_group = hsdp_group();
      c.group = group;
      Case without = c;
      without.reference = false;
      without.objective = [](const BatchTotals& totals) -> std::unique_ptr<Objective> {  // with the same number of metrics
        return std::make_unique<engine::PreferenceLoss>(engine::pair_loss("simpo"), engine::PairOptions{}, totals);
      };
      const auto with = bytes_of(c);
      EXPECT_EQ(with, bytes_of(without)) << strategy << " group " << group;
      if (world().size() > 1) {
        EXPECT_GT(std::accumulate(with.begin(), with.end(), std::uint64_t{0}), 0U);
      }
    }
}

std::unique_ptr<Objective> kto(const BatchTotals& totals) {
  BatchTotals known = totals;
  known.named[std::string(totals::kKl)] = 0.05;
  return std::make_unique<engine::KtoLoss>(engine::KtoOptions{.beta = 0.5, .ftx = 0.1, .chosen_weight = 1.2}, known);
}

/// The routers' metrics appear beside the metrics that the loss derives.
TEST(Kto, OfAModelWithExpertsReportsItsMarginsToo) {
  TinyRun run({.model_type = "qwen2_moe", .lora = true, .reference = true, .objective = kto}, world());
  const auto metrics = run.step(0, 2).metrics;
  EXPECT_EQ(metrics.at("rewards/margins"), metrics.at("rewards/chosen") - metrics.at("rewards/rejected"));
  EXPECT_TRUE(metrics.contains("router/load_max"));
}

/// Single answers, some of them desirable, with a known KL term: the same on one rank and on all.
TEST(Kto, StepsUnderEveryStrategyAreThoseOfOneRank) {
  Case c{.lora = true, .reference = true, .objective = kto};
  const auto self = comm::make_self_communicator();
  TinyRun one(c, *self, c10::kCPU);
  std::vector<StepResult> want;
  for (int s = 0; s < 3; ++s) want.push_back(one.step(s, 1));
  EXPECT_NEAR(want[0].metrics.at("kl"), 0.05, 1e-15);
  for (const char* strategy : {"ddp", "zero2", "zero3"})
    for (const int pack : {2, 9}) {
      SCOPED_TRACE(fmt::format("{} pack {}", strategy, pack));
      c.strategy = strategy;
      c.group = 2;
      TinyRun got(c, world());
      for (int s = 0; s < 3; ++s) expect_near(got.step(s, pack), want[static_cast<std::size_t>(s)], 1e-10);
    }
}

}  // namespace
}  // namespace qft::parallel::testing
