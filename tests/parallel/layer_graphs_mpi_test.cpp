// Layers as graphs. On the CPU a graph is the captured call with its original tensors, so a wrongly kept address or shape shows
// as a wrong number.
#include "qft/comm/session.h"

#include <cmath>

#include "tiny_run.h"
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

std::string name_of(const Case& c, int pack) {
  return fmt::format("{} {} {}{} group {} pack {}{}", c.strategy, c.model_type, c.lora ? "LoRA" : "full", c.tied ? " tied" : "",
                     c.group, pack, c.recompute ? " recompute" : "");
}

/// Compares with the same steps without graphs: losses, norms and weights agree to rounding, which differs only in added zeros.
void expect_same(Case c, int pack, int steps) {
  SCOPED_TRACE(name_of(c, pack));
  auto& world = comm::Session::current().world();
  c.graphs = false;
  TinyRun without(c, world);
  c.graphs = true;
  TinyRun with(c, world);
  for (int s = 0; s < steps; ++s) {
    const auto want = without.step(s, pack), got = with.step(s, pack);
    EXPECT_NEAR(got.loss, want.loss, 1e-10 * std::abs(want.loss)) << "step " << s;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-10 * want.grad_norm) << "step " << s;
  }
  const auto got = with.weights(), want = without.weights();
  ASSERT_EQ(got.size(), want.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - want[i]));
  EXPECT_LE(worst, 1e-7) << "weights";  // as in equivalence_mpi_test.cpp
}

TEST(TrainingByGraphs, GivesTheNumbersOfTheLayersAlone) {
  for (const bool lora : {false, true})
    for (const bool recompute : {false, true}) {
      const Case c{.model_type = lora ? "qwen3" : "qwen2",
                   .tied = !recompute,
                   .lora = lora,
                   .recompute = recompute,
                   .group = lora ? 3 : 1};
      expect_same(c, 1, 4);
      expect_same(c, 4, 4);
    }
}

TEST(TrainingByGraphs, GoesWithSlicedOptimizersAndFixedOrder) {
  expect_same({.recompute = true, .group = 3, .strategy = "zero1"}, 2, 3);
  expect_same({.lora = true, .strategy = "zero1"}, 2, 3);
  expect_same({.lora = true, .deterministic = true}, 2, 3);
}

TEST(TrainingByGraphs, ReplaysWhatItCaptured) {
  auto& world = comm::Session::current().world();
  TinyRun run({.lora = true, .graphs = true}, world);
  for (int s = 0; s < 2; ++s) run.step(s, 1);
  const auto before = run.executor().graphs()->counts();
  for (int s = 2; s < 4; ++s) run.step(s, 1);
  const auto& after = run.executor().graphs()->counts();
  const std::int64_t micros = 9 * (world.rank() + 1) / world.size() - 9 * world.rank() / world.size();
  EXPECT_EQ(after.uncaptured + after.replayed - before.uncaptured - before.replayed, 2 * micros * 3 * 2)
      << "every layer both ways";
  EXPECT_GT(after.replayed, before.replayed);
  EXPECT_EQ(after.moved, 0) << "nothing moves on the way";
}

/// An evaluation over more tokens makes arenas and scratch memory grow, so captured graphs become invalid.
TEST(TrainingByGraphs, NoticesThatMemoryHasMoved) {
  auto& world = comm::Session::current().world();
  const Case c{.recompute = true};
  Case g = c;
  g.graphs = true;
  TinyRun without(c, world), with(g, world);
  for (int s = 0; s < 5; ++s) {
    const auto want = without.step(s, 1), got = with.step(s, 1);
    EXPECT_NEAR(got.loss, want.loss, 1e-10 * std::abs(want.loss)) << "step " << s;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-10 * want.grad_norm) << "step " << s;
    if (s != 2) continue;
    const std::vector<std::int32_t> tokens(700, 1), bounds = {0, 700}, labels = {5};
    const auto in = model::MicroInput::build(tokens, bounds, labels, {}, device_under_test());
    with.executor().evaluate(evaluation_actions(with.spec(), {1}, {1, 1}), {&in, 1}, [](const Logprobs&) {});
  }
  const auto& counts = with.executor().graphs()->counts();
  EXPECT_GE(counts.moved, 6) << "three layers both ways";
  EXPECT_GT(counts.replayed, 0);
}

}  // namespace
}  // namespace qft::parallel::testing
