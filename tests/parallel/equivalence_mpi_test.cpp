// Any number of ranks, any order, with or without recomputation: the numbers of one rank working depth-first.
#include <gtest/gtest.h>

#include <cmath>

#include "qft/comm/session.h"
#include "tiny_run.h"

namespace qft::parallel::testing {
namespace {

constexpr int kSteps = 2;

/// A cover of group x recomputation x sequences a micro-batch.
struct Order {
  int group;
  bool recompute;
  int pack;
};
constexpr Order kOrders[] = {{1, false, 2}, {2, true, 1}, {9, false, 1}, {9, true, 2}};

struct Reference {
  std::vector<StepResult> steps;
  std::vector<double> weights;
};

/// One rank, one sequence a micro-batch, depth-first, nothing recomputed.
Reference reference(Case c) {
  const auto self = comm::make_self_communicator();
  c.group = 1;
  c.recompute = false;
  TinyRun run(c, *self);
  Reference r;
  for (int s = 0; s < kSteps; ++s) r.steps.push_back(run.step(s, 1));
  r.weights = run.weights();
  return r;
}

void expect_same(const Case& c, int pack, const Reference& expected, double tolerance) {
  TinyRun run(c, comm::Session::current().world());
  for (int s = 0; s < kSteps; ++s) {
    const auto got = run.step(s, pack);
    const auto& want = expected.steps[static_cast<std::size_t>(s)];
    EXPECT_NEAR(got.loss, want.loss, tolerance * std::abs(want.loss)) << "step " << s;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, tolerance * want.grad_norm) << "step " << s;
    EXPECT_TRUE(got.finite);
  }
  const auto weights = run.weights();
  ASSERT_EQ(weights.size(), expected.weights.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) worst = std::max(worst, std::abs(weights[i] - expected.weights[i]));
  // Adam divides by the root of the second moment: an element whose gradient is nearly zero amplifies rounding.
  EXPECT_LE(worst, tolerance * 1e3) << "weights";
}

std::string name_of(const Case& c, int pack) {
  return fmt::format("{} {} {} group {} pack {}{} dropout {}", c.model_type, c.tied ? "tied" : "untied", c.lora ? "LoRA" : "full",
                     c.group, pack, c.recompute ? " recompute" : "", c.dropout);
}

TEST(Equivalence, Fp64EveryOrderAndRankCount) {
  for (const char* type : {"qwen2", "qwen3", "llama"})
    for (const bool lora : {false, true})
      for (const bool tied : {true, false}) {
        Case c{.model_type = type, .tied = tied, .lora = lora, .dropout = lora ? 0.3 : 0.0};
        const Reference expected = reference(c);
        for (const auto& [group, recompute, pack] : kOrders) {
          c.group = group;
          c.recompute = recompute;
          SCOPED_TRACE(name_of(c, pack));
          expect_same(c, pack, expected, 1e-10);
        }
      }
}

TEST(Equivalence, Fp32) {
  for (const bool lora : {false, true}) {
    Case c{.lora = lora, .precision = optim::Precision::fp32()};
    const Reference expected = reference(c);
    for (const int group : {1, 3}) {
      c.group = group;
      SCOPED_TRACE(name_of(c, 2));
      expect_same(c, 2, expected, 1e-5);
    }
  }
}

TEST(Equivalence, Bf16StaysWithinItsRounding) {
  for (const auto& precision : {optim::Precision::bf16(), optim::Precision::pure_bf16()}) {
    Case c{.precision = precision};
    const Reference expected = reference({});
    TinyRun run(c, comm::Session::current().world());
    for (int s = 0; s < kSteps; ++s) {
      const auto got = run.step(s, 2);
      EXPECT_NEAR(got.loss, expected.steps[static_cast<std::size_t>(s)].loss, 0.03) << "step " << s;
      EXPECT_NEAR(got.grad_norm, expected.steps[static_cast<std::size_t>(s)].grad_norm,
                  0.05 * expected.steps[static_cast<std::size_t>(s)].grad_norm);
    }
  }
}

TEST(Equivalence, DropoutChangesTheNumbers) {
  const auto without = reference({.lora = true}), with = reference({.lora = true, .dropout = 0.3});
  EXPECT_GT(std::abs(without.steps[0].grad_norm - with.steps[0].grad_norm), 1e-6);
}

TEST(Step, VotesAreCountedOnAllRanks) {
  auto& world = comm::Session::current().world();
  const Case c{.lora = true};
  const auto spec = make_spec(c);
  model::Transformer transformer(spec, at::kDouble, at::kCPU);
  const auto store = make_replicated_store(spec, c.precision, at::kCPU, world, true);
  Executor executor(transformer, *store, world, {});
  TokenMeanLoss loss(1.0);
  const auto result = executor.train(training_schedule(spec, {0, 1, 1, false}), {}, loss, 0, world.rank() == world.size() - 1);
  EXPECT_EQ(result.votes, 1);
  EXPECT_EQ(result.grad_norm, 0.0);
}

}  // namespace
}  // namespace qft::parallel::testing
