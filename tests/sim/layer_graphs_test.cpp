// Layers as graphs on the simulated device: a replay runs the recorded work on its original addresses. In bf16, because graphs
// need flash attention.
#include "qft/comm/session.h"
#include "qft/selftest/small_run.h"

#include <cmath>

#include <gtest/gtest.h>

namespace qft::selftest {
namespace {

c10::Device device() {
  static const c10::Device one = comm::choose_device(comm::Session::current(), "sim");
  return one;
}

/// Compares losses and norms with and without graphs, up to bf16's rounding: padding changes the blocking of products.
void expect_same(SmallCase c, int pack) {
  constexpr int kSteps = 4;
  SCOPED_TRACE(fmt::format("{} {}{} group {} pack {}", c.strategy, c.lora ? "LoRA" : "full", c.recompute ? " recompute" : "",
                           c.group, pack));
  auto& world = comm::Session::current().world();
  c.precision = optim::Precision::bf16();
  SmallRun without(c, world, device());
  c.graphs = true;
  SmallRun with(c, world, device());
  for (int s = 0; s < kSteps; ++s) {
    const auto want = without.step(s, pack), got = with.step(s, pack);
    EXPECT_NEAR(got.loss, want.loss, 4e-3 * std::abs(want.loss)) << "step " << s;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 2e-2 * want.grad_norm) << "step " << s;
  }
  const auto& counts = with.executor().graphs()->counts();
  EXPECT_GT(counts.captured, 0);
  EXPECT_GT(counts.replayed, 0);
  EXPECT_EQ(counts.moved, 0) << "nothing moves on the way";
}

TEST(LayerGraphsOnADevice, GiveTheNumbersOfTheLayersAlone) {
  for (const bool recompute : {false, true}) {
    expect_same({.tied = !recompute, .recompute = recompute}, 4);
    expect_same({.model_type = "qwen3", .lora = true, .recompute = recompute, .group = 3}, 1);
  }
}

TEST(LayerGraphsOnADevice, GoWithSlicedOptimizers) {
  expect_same({.recompute = true, .group = 3, .strategy = "zero1"}, 2);
  expect_same({.lora = true, .strategy = "zero1"}, 2);
}

}  // namespace
}  // namespace qft::selftest
