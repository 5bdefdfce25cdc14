// Any number of ranks, strategy, order and offload: the numbers of one rank working depth-first.
#include "qft/comm/session.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>

#include "tiny_run.h"
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

constexpr int kSteps = 2;
constexpr std::int64_t kWide = std::int64_t{1} << 40;
constexpr const char* kStrategies[] = {"ddp", "zero1", "zero2", "shard_grad_op", "zero3", "hsdp"};

/// What may differ without changing a number: indices into the lists below, one a dimension.
enum Dimension : std::uint8_t { strategy, offload, group, pack, recompute, budget, model_type, lora, tied, dimensions };
using Choice = std::array<int, dimensions>;
constexpr Choice kSizes = {6, 5, 3, 3, 2, 2, 3, 2, 2};
constexpr Offload kOffloads[] = {{}, {.optimizer = true}, {.weights = true}, {.activations = true}, {true, true, true}};
constexpr int kGroups[] = {1, 2, 9};  // of at most nine micro-batches a rank
constexpr int kPacks[] = {1, 2, 9};   // sequences a micro-batch: with nine only one rank has work
constexpr const char* kTypes[] = {"qwen2", "qwen3", "llama"};

bool valid(const Choice& c) {
  return c[recompute] == 1 || !kOffloads[c[offload]].activations;
}

std::vector<Choice> product(const Choice& sizes) {
  std::vector<Choice> all = {{}};
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::vector<Choice> longer;
    for (Choice c : all)
      for (c[d] = 0; c[d] < sizes[d]; ++c[d]) longer.push_back(c);
    all = std::move(longer);
  }
  std::erase_if(all, [](const Choice& c) { return !valid(c); });
  return all;
}

/// A choice for each pair of values of two dimensions, greedily.
std::vector<Choice> pairwise() {
  const auto all = product(kSizes);
  const auto pairs = [](const Choice& c, const auto& f) {
    for (int a = 0; a < dimensions; ++a)
      for (int b = a + 1; b < dimensions; ++b)
        f(((a * dimensions + b) * 6 + c[static_cast<std::size_t>(a)]) * 6 + c[static_cast<std::size_t>(b)]);
  };
  std::set<int> open;
  for (const Choice& c : all) pairs(c, [&](int pair) { open.insert(pair); });
  std::vector<Choice> cover;
  while (!open.empty()) {
    const Choice* best = nullptr;
    int most = 0;
    for (const Choice& c : all) {
      int count = 0;
      pairs(c, [&](int pair) { count += static_cast<int>(open.count(pair)); });
      if (count > most) {
        most = count;
        best = &c;
      }
    }
    pairs(*best, [&](int pair) { open.erase(pair); });
    cover.push_back(*best);
  }
  return cover;
}

/// QFT_EQUIVALENCE=full: the whole product of what concerns sharding, with two models; else a pairwise cover of everything.
std::vector<Choice> choices() {
  const char* wish = std::getenv("QFT_EQUIVALENCE");
  if (wish == nullptr || std::string_view(wish) != "full") return pairwise();
  Choice sizes = kSizes;
  sizes[budget] = sizes[model_type] = sizes[tied] = 1;
  std::vector<Choice> all;
  for (const Choice& c : product(sizes))
    for (const int other : {0, 1}) {
      all.push_back(c);
      all.back()[budget] = all.back()[model_type] = all.back()[tied] = other;
    }
  return all;
}

/// In four ranks' hsdp two share a copy; two or three ranks share one, or none.
int hsdp_group() {
  const int ranks = comm::Session::current().size();
  return ranks % 2 == 0 ? 2 : ranks;
}

Case case_of(const Choice& c) {
  return {.model_type = kTypes[c[model_type]],
          .tied = c[tied] == 0,
          .lora = c[lora] == 1,
          .recompute = c[recompute] == 1,
          .dropout = c[lora] == 1 ? 0.3 : 0.0,
          .group = kGroups[c[group]],
          .strategy = kStrategies[c[strategy]],
          .hsdp_group = hsdp_group(),
          .prefetch_budget = c[budget] == 0 ? 1 : kWide,
          .offload = kOffloads[c[offload]]};
}

struct Reference {
  std::vector<StepResult> steps;
  std::vector<double> weights;
};

/// One rank, one sequence a micro-batch, depth-first, nothing recomputed, sharded or offloaded.
Reference reference(Case c, int steps = kSteps) {
  const auto self = comm::make_self_communicator();
  c.strategy = "ddp";
  c.hsdp_group = c.group = 1;
  c.recompute = false;
  c.offload = {};
  c.loss_scale = 1.0;
  TinyRun run(c, *self);
  Reference r;
  for (int s = 0; s < steps; ++s) r.steps.push_back(run.step(s, 1));
  r.weights = run.weights();
  return r;
}

void expect_same(const Case& c, int pack, const Reference& expected, double tolerance, double weights_tolerance) {
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

std::string name_of(const Case& c, int pack) {
  const auto& o = c.offload;
  return fmt::format("{} {} {} {} group {} pack {} budget {}{} offload{}{}{}{}", c.strategy, c.model_type,
                     c.tied ? "tied" : "untied", c.lora ? "LoRA" : "full", c.group, pack, c.prefetch_budget,
                     c.recompute ? " recompute" : "", o.optimizer ? " optimizer" : "", o.weights ? " weights" : "",
                     o.activations ? " activations" : "", o.any() ? "" : " nothing");
}

TEST(Equivalence, Fp64EveryStrategyOrderOffloadAndRankCount) {
  std::map<std::array<int, 3>, Reference> references;
  for (const Choice& choice : choices()) {
    const Case c = case_of(choice);
    auto& expected = references[{choice[model_type], choice[lora], choice[tied]}];
    if (expected.steps.empty()) expected = reference(c);
    SCOPED_TRACE(name_of(c, kPacks[choice[pack]]));
    // Adam divides by the root of the second moment: an element whose gradient is nearly zero amplifies rounding.
    expect_same(c, kPacks[choice[pack]], expected, 1e-10, 1e-7);
  }
}

TEST(Equivalence, Fp64OfLionWhereverItsStateIs) {
  for (const bool lora : {false, true}) {
    Case c{.model_type = "llama", .lora = lora, .group = 2, .hsdp_group = hsdp_group(), .optim = "lion", .learning_rate = 1e-3};
    const Reference expected = reference(c, 4);
    for (const char* strategy : kStrategies)
      for (const Offload& offload : {Offload{}, Offload{.optimizer = true}, Offload{true, true, false}}) {
        c.strategy = strategy;
        c.offload = offload;
        SCOPED_TRACE(name_of(c, 2));
        expect_same(c, 2, expected, 1e-10, 1e-10);
      }
  }
}

TEST(Equivalence, Fp32StaysWithin1e5For20Steps) {
  for (const bool lora : {false, true}) {
    Case c{.lora = lora,
           .group = lora ? 3 : 1,
           .hsdp_group = hsdp_group(),
           .precision = optim::Precision::fp32(),
           .learning_rate = 1e-3};
    const Reference expected = reference(c, 20);
    for (const char* strategy : kStrategies) {
      c.strategy = strategy;
      c.offload.weights = lora;
      SCOPED_TRACE(name_of(c, 2));
      expect_same(c, 2, expected, 1e-5, 1e-3);
    }
  }
}

TEST(Equivalence, HalfTypesStayWithinTheirRounding) {
  struct Half {
    optim::Precision precision;
    double loss_scale;
  };
  for (const Half& half :
       {Half{optim::Precision::bf16(), 1.0}, {optim::Precision::pure_bf16(), 1.0}, {optim::Precision::fp16(), 1024.0}})
    for (const char* strategy : {"ddp", "zero1", "zero3"}) {
      const Case c{.strategy = strategy, .precision = half.precision, .loss_scale = half.loss_scale};
      SCOPED_TRACE(name_of(c, 2) + " " + c10::toString(half.precision.compute));
      const Reference expected = reference({});
      TinyRun run(c, comm::Session::current().world());
      // fp16 has three bits more than bf16.
      const double tolerance = half.precision.compute == at::kHalf ? 0.005 : 0.03;
      for (int s = 0; s < kSteps; ++s) {
        const auto got = run.step(s, 2);
        const auto& want = expected.steps[static_cast<std::size_t>(s)];
        EXPECT_NEAR(got.loss, want.loss, tolerance) << "step " << s;
        EXPECT_NEAR(got.grad_norm, want.grad_norm, 2 * tolerance * want.grad_norm);
      }
    }
}

/// All of them in fp32 and bf16, where every change of order shows.
TEST(Deterministic, TheBitsOfOneRankOnAnyNumberOfRanks) {
  const auto self = comm::make_self_communicator();
  for (const optim::Precision& precision : {optim::Precision::fp32(), optim::Precision::bf16(), optim::Precision::pure_bf16()})
    for (const bool lora : {false, true}) {
      const Case c{.lora = lora, .recompute = lora, .dropout = 0.3, .precision = precision, .deterministic = true};
      for (const int pack : {1, 2, 9}) {  // nine, five and one micro-batches
        SCOPED_TRACE(name_of(c, pack) + " " + c10::toString(precision.compute));
        TinyRun one(c, *self), ours(c, comm::Session::current().world());
        for (int s = 0; s < 4; ++s) {
          const auto want = one.step(s, pack), got = ours.step(s, pack);
          EXPECT_EQ(got.loss, want.loss) << "step " << s;
          EXPECT_EQ(got.grad_norm, want.grad_norm) << "step " << s;
        }
        EXPECT_EQ(ours.weights(), one.weights());
      }
    }
}

TEST(Deterministic, IsTheSumThatIsTakenElsewhere) {
  const Case c{.hsdp_group = 1};
  Case d = c;
  d.deterministic = true;
  expect_same(d, 2, reference(c), 1e-10, 1e-7);
}

TEST(LossScale, ThatIsTooLargeShowsOnEveryRank) {
  for (const char* strategy : {"ddp", "zero2", "zero3"}) {
    TinyRun run({.strategy = strategy, .precision = optim::Precision::fp16(), .loss_scale = 0x1p40},
                comm::Session::current().world());
    const auto before = run.weights();
    // Only the rank with work can find it with nine sequences in one micro-batch.
    EXPECT_FALSE(run.step(0, 9).finite) << strategy;
    EXPECT_EQ(run.weights(), before) << strategy;
  }
}

TEST(Equivalence, DropoutChangesTheNumbers) {
  const auto without = reference({.lora = true}), with = reference({.lora = true, .dropout = 0.3});
  EXPECT_GT(std::abs(without.steps[0].grad_norm - with.steps[0].grad_norm), 1e-6);
}

TEST(Step, ThatIsAbandonedLeavesNothingBehind) {
  auto& world = comm::Session::current().world();
  std::vector<Case> cases;
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    for (const bool lora : {false, true})
      for (const std::int64_t prefetch_budget : {std::int64_t{1}, std::int64_t{1} << 40})
        cases.push_back({.lora = lora, .group = lora ? 2 : 1, .strategy = strategy, .prefetch_budget = prefetch_budget});
  cases.push_back({.deterministic = true});
  cases.push_back({.strategy = "zero3", .offload = {.optimizer = true, .weights = true}});
  for (const Case& c : cases) {
    TinyRun alone(c, world), stopped(c, world);
    alone.step(0, 1);
    alone.step(1, 1);
    stopped.step(0, 1);
    int votes = 0;  // one rank is asked to stop after the first group
    const auto result = stopped.step(1, 1, [&](bool) { return ++votes == 2 && world.rank() == world.size() - 1; });
    EXPECT_TRUE(result.abandoned);
    EXPECT_EQ(result.votes, 1);
    EXPECT_EQ(votes, 2);
    EXPECT_EQ(stopped.reader().memory().gathered, 0);
    stopped.step(1, 1);
    EXPECT_EQ(stopped.weights(), alone.weights()) << c.strategy << (c.lora ? " LoRA" : "") << " budget " << c.prefetch_budget;
  }
}

TEST(Step, IsAskedAfterItsLastMicroBatchWhetherToStop) {
  auto& world = comm::Session::current().world();
  TinyRun run({.lora = true}, world);
  int asked = 0;
  const auto result = run.step(0, 1, [&](bool) { return ++asked, false; });
  EXPECT_FALSE(result.abandoned);
  EXPECT_EQ(asked, (9 + world.size() - 1) / world.size() + 1);
  EXPECT_GT(result.seconds, 0.0);
}

TEST(Step, VotesAreCountedOnAllRanks) {
  auto& world = comm::Session::current().world();
  const Case c{.lora = true};
  const auto spec = make_spec(c);
  model::Transformer transformer(spec, at::kDouble, at::kCPU);
  const auto store = make_replicated_store(spec, c.precision, at::kCPU, world, true);
  Executor executor(transformer, *store, world, {});
  const TokenMeanLoss loss({1.0, 1.0});
  const auto result = executor.train(training_schedule(spec, {0, 1, 1, false}), {}, loss, 0,
                                     [&](bool) { return world.rank() == world.size() - 1; });
  EXPECT_EQ(result.votes, 1);
  EXPECT_FALSE(result.abandoned);
  EXPECT_EQ(result.grad_norm, 0.0);
}

}  // namespace
}  // namespace qft::parallel::testing
