// Any number of ranks, any order, with or without recomputation: the numbers of one rank working depth-first.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "qft/comm/session.h"
#include "tiny_run.h"

namespace qft::parallel::testing {
namespace {

constexpr int kSteps = 2;

/// A cover of strategy x group x recomputation x sequences a micro-batch x prefetch window. In four ranks' hsdp two
/// share a copy; two or three ranks share one, or none.
struct Order {
  const char* strategy;
  int group;
  bool recompute;
  int pack;
  std::int64_t window;
};
constexpr std::int64_t kWide = std::int64_t{1} << 40;
constexpr Order kOrders[] = {
    {"ddp", 1, false, 2, 1},   {"ddp", 2, true, 1, 1},           {"ddp", 9, false, 1, 1},           {"ddp", 9, true, 2, 1},
    {"zero1", 1, true, 2, 1},  {"zero1", 9, false, 1, 1},        {"zero2", 1, false, 1, 1},         {"zero2", 2, true, 2, 1},
    {"zero3", 1, false, 1, 1}, {"zero3", 2, true, 1, 60000},     {"zero3", 9, false, 2, kWide},     {"zero3", 9, true, 9, 1},
    {"hsdp", 2, false, 1, 1},  {"shard_grad_op", 1, true, 2, 1}, {"shard_grad_op", 3, false, 1, kWide}};

int hsdp_group() {
  const int ranks = comm::Session::current().size();
  return ranks % 2 == 0 ? 2 : ranks;
}

struct Reference {
  std::vector<StepResult> steps;
  std::vector<double> weights;
};

/// One rank, one sequence a micro-batch, depth-first, nothing recomputed or sharded.
Reference reference(Case c) {
  const auto self = comm::make_self_communicator();
  c.strategy = "ddp";
  c.hsdp_group = 1;
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
  return fmt::format("{} {} {} {} group {} pack {}{} dropout {}", c.strategy, c.model_type, c.tied ? "tied" : "untied",
                     c.lora ? "LoRA" : "full", c.group, pack, c.recompute ? " recompute" : "", c.dropout);
}

/// QFT_EQUIVALENCE=full: the whole product of orders, with every model; else each order of the cover with every fourth.
bool whole_product() {
  const char* wish = std::getenv("QFT_EQUIVALENCE");
  return wish != nullptr && std::string_view(wish) == "full";
}

std::vector<Order> orders(int model) {
  std::vector<Order> list;
  if (whole_product()) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3", "hsdp"})
      for (const int group : {1, 2, 9})
        for (const bool recompute : {false, true})
          for (const int pack : {1, 2, 9}) list.push_back({strategy, group, recompute, pack, pack == 1 ? 1 : kWide});
    return list;
  }
  for (int i = 0; i < static_cast<int>(std::size(kOrders)); ++i)
    if ((model + i) % 4 == 0) list.push_back(kOrders[i]);
  return list;
}

TEST(Equivalence, Fp64EveryStrategyOrderAndRankCount) {
  int model = 0;
  for (const char* type : {"qwen2", "qwen3", "llama"})
    for (const bool lora : {false, true})
      for (const bool tied : {true, false}) {
        Case c{.model_type = type, .tied = tied, .lora = lora, .dropout = lora ? 0.3 : 0.0, .hsdp_group = hsdp_group()};
        const Reference expected = reference(c);
        for (const Order& order : orders(model++)) {
          c.strategy = order.strategy;
          c.group = order.group;
          c.recompute = order.recompute;
          c.window = order.window;
          SCOPED_TRACE(name_of(c, order.pack));
          expect_same(c, order.pack, expected, 1e-10);
        }
      }
}

TEST(Equivalence, Fp32) {
  for (const bool lora : {false, true}) {
    Case c{.lora = lora, .hsdp_group = hsdp_group(), .precision = optim::Precision::fp32()};
    const Reference expected = reference(c);
    for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3", "hsdp"})
      for (const int group : {1, 3}) {
        c.strategy = strategy;
        c.group = group;
        SCOPED_TRACE(name_of(c, 2));
        expect_same(c, 2, expected, 1e-5);
      }
  }
}

TEST(Equivalence, Bf16StaysWithinItsRounding) {
  for (const auto& precision : {optim::Precision::bf16(), optim::Precision::pure_bf16()})
  for (const char* strategy : {"ddp", "zero1", "zero3"}) {
    Case c{.strategy = strategy, .precision = precision};
    SCOPED_TRACE(name_of(c, 2));
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
