// Pairs whose sequences share prompt rows train like pairs with separate rows.
#include "qft/comm/session.h"

#include <algorithm>
#include <cmath>

#include "engine/preference.h"
#include "engine/reward.h"
#include "tiny_run.h"
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

std::unique_ptr<Objective> mixed_dpo(const BatchTotals& totals) {
  return std::make_unique<engine::PreferenceLoss>(engine::pair_loss("sigmoid"),
                                                  engine::PairOptions{.beta = 0.5, .ftx = 0.1, .rpo_alpha = 0.3}, totals);
}
std::unique_ptr<Objective> mixed_simpo(const BatchTotals& totals) {
  return std::make_unique<engine::PreferenceLoss>(
      engine::pair_loss("simpo"), engine::PairOptions{.beta = 2.0, .gamma = 1.0, .ftx = 0.1, .rpo_alpha = 0.3}, totals);
}
std::unique_ptr<Objective> pair_reward(const BatchTotals& totals) {
  return std::make_unique<engine::RewardLoss>(totals);
}

/// SGD: a step changes the weights by the gradient.
Case pairs_case(const char* model_type, bool lora, bool scores = false) {
  return {.model_type = model_type,
          .sliding_window = std::string_view(model_type) == "qwen2" ? 4 : 0,
          .tied = lora,
          .lora = lora,
          .optim = "sgd",
          .learning_rate = 0.1,
          .item_sequences = 2,
          .same_prompts = true,
          .reference = lora && !scores,
          .reward = scores,
          .objective = scores ? pair_reward
                       : lora ? mixed_dpo
                              : mixed_simpo};
}

void expect_alike(TinyRun& got, TinyRun& want, int pack, int steps) {
  for (int s = 0; s < steps; ++s) {
    const StepResult is = got.step(s, pack), was = want.step(s, pack);
    EXPECT_NEAR(is.loss, was.loss, 1e-12 * std::abs(was.loss));
    EXPECT_NEAR(is.grad_norm, was.grad_norm, 1e-11 * was.grad_norm);
    EXPECT_EQ(is.metrics.size(), was.metrics.size());
    for (const auto& [name, value] : was.metrics) EXPECT_NEAR(is.metrics.at(name), value, 1e-11 * (1 + std::abs(value))) << name;
  }
  const auto a = got.weights(), b = want.weights();
  ASSERT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  EXPECT_LE(worst, 1e-12);
}

/// With the routers' losses: a shared token counts in both sequences. Each case runs on one rank.
TEST(SharedPrompts, TrainEveryKindOfModelAsWithRowsOfTheirOwn) {
  const auto& world = comm::Session::current().world();
  const auto self = comm::make_self_communicator();
  int number = 0;
  for (const char* model_type : {"qwen2", "qwen3", "qwen3_5_text", "qwen2_moe"})
    for (const bool lora : {false, true})
      for (const bool scores : {false, true}) {
        if (number++ % world.size() != world.rank()) continue;
        const int pack = lora == scores ? 1 : 4;
        SCOPED_TRACE(fmt::format("{} LoRA {} reward {} pack {}", model_type, lora, scores, pack));
        Case c = pairs_case(model_type, lora, scores);
        TinyRun apart(c, *self, c10::kCPU);
        c.share_prompts = true;
        c.recompute = pack == 4;
        TinyRun shared(c, *self, c10::kCPU);
        expect_alike(shared, apart, pack, 2);
      }
}

TEST(SharedPrompts, TrainAlikeUnderEveryStrategy) {
  auto& world = comm::Session::current().world();
  for (const char* strategy : {"ddp", "zero2", "zero3"})
    for (const bool lora : {false, true}) {
      SCOPED_TRACE(fmt::format("{} LoRA {}", strategy, lora));
      Case c = pairs_case("qwen3", lora);
      c.strategy = strategy;
      c.group = 2;
      TinyRun apart(c, world, c10::kCPU);
      c.share_prompts = true;
      TinyRun shared(c, world);
      expect_alike(shared, apart, 2, 3);
    }
}

/// A shared row has the dropout mask of its first sequence, for any number of ranks and micro-batches.
TEST(SharedPrompts, HaveTheSameDropoutOnAnyNumberOfRanks) {
  auto& world = comm::Session::current().world();
  const auto self = comm::make_self_communicator();
  Case c = pairs_case("qwen3", /*lora=*/true, /*scores=*/true);
  c.dropout = 0.3;
  c.share_prompts = true;
  c.deterministic = true;
  c.precision = optim::Precision::bf16();
  TinyRun one(c, *self, c10::kCPU), all(c, world, c10::kCPU);
  for (int s = 0; s < 2; ++s) {
    const StepResult is = all.step(s, 2), was = one.step(s, 2);
    EXPECT_EQ(is.loss, was.loss);
    EXPECT_EQ(is.grad_norm, was.grad_norm);
  }
  EXPECT_EQ(all.weights(), one.weights());
}

}  // namespace
}  // namespace qft::parallel::testing
