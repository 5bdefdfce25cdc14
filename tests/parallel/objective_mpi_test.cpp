// Objectives of whole sequences: the same numbers on any number of ranks, and gradients that autograd confirms.
#include "qft/comm/session.h"
#include "qft/core/error.h"

#include <cmath>

#include "engine/simpo.h"
#include "tiny_run.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

constexpr std::string_view kMetrics[] = {"labels", "long"};

/// Cross-entropy again, from the sums of sequences: what TokenMeanLoss gives with logits computed once.
class SummedCrossEntropy final : public SequenceObjective {
 public:
  explicit SummedCrossEntropy(const BatchTotals& totals) : denominator_(totals.label_tokens) {}
  static std::unique_ptr<Objective> make(const BatchTotals& totals) { return std::make_unique<SummedCrossEntropy>(totals); }
  double denominator() const override { return denominator_; }
  std::span<const std::string_view> metrics() const override { return kMetrics; }

 protected:
  /// With them the mean number of labels of a sequence, and a metric that counts only the sequences with ten or more.
  at::Tensor observe_sequences(const model::MicroInput&, const at::Tensor& logprobs, const at::Tensor& counts,
                               const at::Tensor& grad) const override {
    if (grad.defined()) grad.fill_(-1.0 / denominator_);
    const at::Tensor tall = counts.ge(10).to(at::kDouble);
    return at::stack({logprobs.sum().neg(), counts.sum(), at::ones_like(counts).sum(), (counts * tall).sum(), tall.sum()});
  }

 private:
  double denominator_;
};

comm::Communicator& world() {
  return comm::Session::current().world();
}

Case sequence_case(Case c) {
  c.objective = SummedCrossEntropy::make;
  return c;
}

TEST(SequenceLevel, TheHeadsBackwardOnItsOwnGivesTheGradientsOfBothAtOnce) {
  const auto self = comm::make_self_communicator();
  for (const bool lora : {false, true})
    for (const char* strategy : {"ddp", "zero2", "zero3"})
      for (const bool offload : {false, true}) {
        SCOPED_TRACE(fmt::format("{} LoRA {} offload {}", strategy, lora, offload));
        const Case c{.tied = !lora,
                     .lora = lora,
                     .recompute = offload,
                     .group = 2,
                     .strategy = strategy,
                     .offload = {.activations = offload},
                     .loss_scale = 64.0};
        TinyRun expected({.tied = !lora, .lora = lora}, *self, c10::kCPU), got(sequence_case(c), world());
        for (int s = 0; s < 2; ++s) {
          const auto want = expected.step(s, 1), is = got.step(s, 2);
          EXPECT_NEAR(is.loss, want.loss, 1e-10 * want.loss);
          EXPECT_NEAR(is.grad_norm, want.grad_norm, 1e-10 * want.grad_norm);
        }
        const auto a = got.weights(), b = expected.weights();
        ASSERT_EQ(a.size(), b.size());
        for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-7) << i;
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

TEST(SequenceLevel, InMicroBatchOrderTheBitsOfOneRank) {
  const auto self = comm::make_self_communicator();
  const Case c = sequence_case({.precision = optim::Precision::bf16(), .deterministic = true, .item_sequences = 2});
  for (const int pack : {1, 2}) {
    TinyRun one(c, *self), ours(c, world());
    for (int s = 0; s < 3; ++s) {
      const auto want = one.step(s, pack), got = ours.step(s, pack);
      EXPECT_EQ(got.loss, want.loss);
      EXPECT_EQ(got.metrics, want.metrics);
      EXPECT_EQ(got.grad_norm, want.grad_norm);
    }
    EXPECT_EQ(ours.weights(), one.weights());
  }
}

std::unique_ptr<Objective> simpo(const BatchTotals& totals) {
  return std::make_unique<engine::SimpoLoss>(2.0, 1.0, 0.1, totals);
}

/// Pairs train alike on one rank and on all of them, whatever is sharded.
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
      // The same nine pairs again and again are learned.
      const auto want = expected.step(0, 1), is = got.step(0, 1);
      EXPECT_NEAR(is.loss, want.loss, 1e-10 * want.loss);
      EXPECT_NEAR(is.grad_norm, want.grad_norm, 1e-9 * want.grad_norm);
      ASSERT_EQ(is.metrics.size(), 6U);
      for (const auto& [name, value] : want.metrics) EXPECT_NEAR(is.metrics.at(name), value, 1e-9) << name;
      (s == 0 ? first : last) = is.metrics.at("rewards/margins");
    }
    EXPECT_GT(last, first + 1.0);
  }
}

TEST(Lane, ThatIsNotBuiltIsRefused) {
  TinyRun run({}, world());
  ActionList list = run.list(0, 1);
  list.insert(list.begin(), {.kind = ActionKind::forward, .target = 0, .micro = 0, .lane = Lane::reference});
  const TokenMeanLoss loss({1.0, 1.0});
  try {
    run.executor().train(list, {}, loss, 0);
    FAIL() << "the reference lane ran";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("forward(embedding, micro 0, reference): only the policy can run"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace qft::parallel::testing
