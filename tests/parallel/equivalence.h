// Shared by the equivalence tests: a run, and the same steps on one rank that works depth-first on the CPU.
#pragma once

#include "qft/comm/exchange.h"
#include "qft/comm/session.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tiny_run.h"
#include <gtest/gtest.h>

namespace qft::parallel::testing {

inline constexpr int kSteps = 2;
inline constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "shard_grad_op", "zero3", "hsdp"};

/// Returns the hsdp group size: an even number of ranks shares copies in pairs, an odd number shares a single copy.
inline int hsdp_group() {
  const int ranks = comm::Session::current().size();
  return ranks % 2 == 0 ? 2 : ranks;
}

/// Returns whether a case runs with another number of ranks. Two, three and four ranks divide the cases by the sum of the indices
/// in the combined lists. Exception: hsdp, which differs from zero3 only on four ranks. With QFT_EQUIVALENCE
/// (scripts/nightly_equivalence.sh) every number of ranks runs all cases.
inline bool is_another_counts(std::string_view strategy, std::size_t indices) {
  constexpr std::size_t kRankCounts = 3;
  const auto ranks = static_cast<std::size_t>(comm::Session::current().size());
  if (std::getenv("QFT_EQUIVALENCE") != nullptr || ranks < 2 || ranks > 4) return false;
  return strategy == "hsdp" ? ranks != 4 : indices % kRankCounts != ranks % kRankCounts;
}

struct Reference {
  std::vector<StepResult> steps;
  std::vector<double> weights;
};

/// Runs on the CPU: one rank, one sequence per micro-batch, depth-first, without recomputation, sharding or offload.
inline Reference reference(Case c, int steps = kSteps) {
  const auto self = comm::make_self_communicator();
  c.strategy = "ddp";
  c.hsdp_group = c.group = 1;
  c.recompute = false;
  c.offload = {};
  c.loss_scale = 1.0;
  TinyRun run(c, *self, c10::kCPU);
  Reference r;
  for (int s = 0; s < steps; ++s) r.steps.push_back(run.step(s, 1));
  r.weights = run.weights();
  return r;
}

/// Returns loss, norm and weights of each case; the cases are distributed over the ranks. Collective.
inline std::vector<Reference> references(const std::vector<Case>& cases) {
  comm::Communicator& world = comm::Session::current().world();
  std::vector<Reference> all(cases.size());
  const auto owner = [&](std::size_t i) { return static_cast<int>(i) % world.size(); };
  for (std::size_t i = 0; i < cases.size(); ++i)
    if (owner(i) == world.rank()) all[i] = reference(cases[i]);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    Reference& r = all[i];
    r.steps.resize(kSteps);
    r.weights.resize(comm::broadcast_value(world, r.weights.size(), owner(i)));
    world.host().broadcast(r.weights.data(), r.weights.size(), DType::f64, owner(i));
    for (StepResult& step : r.steps) {
      step.loss = comm::broadcast_value(world, step.loss, owner(i));
      step.grad_norm = comm::broadcast_value(world, step.grad_norm, owner(i));
    }
  }
  return all;
}

inline void expect_same(const Case& c, int pack, const Reference& expected, double tolerance, double weights_tolerance) {
  TinyRun run(c, comm::Session::current().world());
  for (int s = 0; s < static_cast<int>(expected.steps.size()); ++s) {
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
  EXPECT_LE(worst, weights_tolerance) << "weights";
}

inline std::string name_of(const Case& c, int pack) {
  const auto& o = c.offload;
  return fmt::format("{} {} {} {}{} group {} pack {} budget {}{} offload{}{}{}{}", c.strategy, c.model_type,
                     c.tied ? "tied" : "untied", c.lora ? "LoRA" : "full", c.parts ? " parts" : "", c.group, pack,
                     c.prefetch_budget, c.recompute ? " recompute" : "", o.optimizer ? " optimizer" : "",
                     o.weights ? " weights" : "", o.activations ? " activations" : "", o.any() ? "" : " nothing");
}

}  // namespace qft::parallel::testing
