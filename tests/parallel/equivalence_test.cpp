// Any number of ranks, strategy, order and offload, on each device, gives the numbers of one rank working depth-first.
#include "equivalence.h"

#include "qft/device/stream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string_view>

#include "parallel/offloaded_activations.h"
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

namespace qft::parallel::testing {
namespace {

constexpr std::int64_t kWide = std::int64_t{1} << 40;

/// Dimensions that must not change a number: indices into the lists below.
enum Dimension : std::uint8_t { strategy, offload, group, pack, recompute, budget, model_type, trained, tied, dimensions };
using Choice = std::array<int, dimensions>;
constexpr const char* kTypes[] = {"qwen2", "qwen3_moe", "qwen3_5_text", "qwen2_moe", "olmo2", "arcee"};
constexpr Choice kSizes = {6, 5, 3, 3, 2, 2, std::size(kTypes), 4, 2};
constexpr Offload kOffloads[] = {{}, {.optimizer = true}, {.weights = true}, {.activations = true}, {true, true, true}};
constexpr int kGroups[] = {1, 2, 9};  // a rank has at most nine micro-batches
constexpr int kPacks[] = {1, 2, 9};   // sequences per micro-batch: with nine only one rank has work

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

/// Returns choices that cover each pair of values of two dimensions, greedily.
std::vector<Choice> pairwise(const Choice& sizes) {
  const auto all = product(sizes);
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

/// Distributes each strategy's choices over the numbers of ranks, because a simulated device is slow.
std::vector<Choice> dealt(const std::vector<Choice>& cover) {
  constexpr int kRankCounts = 4;
  std::map<int, int> seen;  // by strategy
  std::vector<Choice> part;
  for (const Choice& choice : cover)
    if (seen[choice[strategy]]++ % kRankCounts == comm::Session::current().world().size() % kRankCounts) part.push_back(choice);
  return part;
}

/// Returns a pairwise cover of everything. QFT_EQUIVALENCE=sharding: a pairwise cover of the sharding dimensions, with one model;
/// =full: the full product of these, with two models.
std::vector<Choice> choices() {
  const char* wish = std::getenv("QFT_EQUIVALENCE");
  if (wish == nullptr) return device_under_test().is_privateuseone() ? dealt(pairwise(kSizes)) : pairwise(kSizes);
  Choice sizes = kSizes;
  sizes[model_type] = sizes[tied] = 1;
  if (std::string_view(wish) == "sharding") {
    sizes[trained] = 2;
    return pairwise(sizes);
  }
  if (std::string_view(wish) != "full") throw std::invalid_argument(fmt::format("QFT_EQUIVALENCE={}: sharding or full", wish));
  sizes[budget] = 1;
  std::vector<Choice> all;
  for (const Choice& c : product(sizes))
    for (const int other : {0, 1}) {
      all.push_back(c);
      all.back()[budget] = all.back()[model_type] = all.back()[tied] = other;
    }
  return all;
}

/// Full, LoRA, parts of the model, LoRA with parts.
Case case_of(const Choice& c) {
  const bool lora = c[trained] % 2 == 1;
  return {.model_type = kTypes[c[model_type]],
          .tied = c[tied] == 0,
          .lora = lora,
          .recompute = c[recompute] == 1,
          .parts = c[trained] >= 2,
          .dropout = lora ? 0.3 : 0.0,
          .noise_alpha = lora ? 0.0 : 3.0,
          .group = kGroups[c[group]],
          .strategy = kStrategies[c[strategy]],
          .hsdp_group = hsdp_group(),
          .prefetch_budget = c[budget] == 0 ? 1 : kWide,
          .offload = kOffloads[c[offload]]};
}

TEST(Equivalence, Fp64EveryStrategyOrderOffloadAndRankCount) {
  std::map<std::array<int, 3>, std::size_t> number;  // index of each reference
  std::vector<Case> cases;
  const auto all = choices();
  const auto what = [](const Choice& c) { return std::array{c[model_type], c[trained], c[tied]}; };
  for (const Choice& choice : all)
    if (number.try_emplace(what(choice), cases.size()).second) cases.push_back(case_of(choice));
  const auto expected = references(cases);
  for (const Choice& choice : all) {
    const Case c = case_of(choice);
    SCOPED_TRACE(name_of(c, kPacks[choice[pack]]));
    // Adam divides by the root of the second moment: an element with a nearly zero gradient amplifies rounding.
    expect_same(c, kPacks[choice[pack]], expected[number.at(what(choice))], 1e-10, 1e-7);
  }
}

double most_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::isnan(a[i] - b[i]) ? HUGE_VAL : std::abs(a[i] - b[i]));
  return most;
}

TEST(Step, ThatIsAbandonedLeavesNothingBehind) {
  auto& world = comm::Session::current().world();
  std::vector<Case> cases;
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    for (const bool lora : {false, true})
      for (const std::int64_t prefetch_budget : {std::int64_t{1}, kWide})
        if (device_under_test().is_cpu() || lora == (prefetch_budget == kWide))  // a simulated device is slow
          cases.push_back({.lora = lora, .group = lora ? 2 : 1, .strategy = strategy, .prefetch_budget = prefetch_budget});
  cases.push_back({.deterministic = true});
  cases.push_back({.strategy = "zero3", .offload = {.optimizer = true, .weights = true}});
  // On CUDA, the fp64 gradient of the embedding is a sum by atomics, in no fixed order.
  const double allowed = device_under_test().is_cuda() ? 1e-12 : 0.0;
  for (const Case& c : cases) {
    TinyRun alone(c, world), stopped(c, world);
    alone.step(0, 1);
    alone.step(1, 1);
    stopped.step(0, 1);
    int votes = 0;  // one rank is asked to stop after the first group
    const auto result = stopped.step(1, 1, [&](bool step_done) {
      // Queued work could no longer be left out.
      EXPECT_TRUE(step_done || device::Stream::current(device_under_test()).idle());
      return ++votes == 2 && world.rank() == world.size() - 1;
    });
    EXPECT_TRUE(result.abandoned);
    EXPECT_EQ(result.stop_requests, 1);
    EXPECT_EQ(votes, 2);
    EXPECT_EQ(stopped.reader().memory().gathered, 0);
    stopped.step(1, 1);
    EXPECT_LE(most_difference(stopped.weights(), alone.weights()), allowed)
        << c.strategy << (c.lora ? " LoRA" : "") << " budget " << c.prefetch_budget;
  }
}

/// A store of one rank that keeps its weights in host memory.
struct OffloadedStore {
  Case c{.tied = false, .strategy = "zero3", .offload = {.weights = true}};
  model::ModelSpec spec = make_spec(c);
  std::unique_ptr<comm::Communicator> self = comm::make_self_communicator();
  std::unique_ptr<WeightStore> store =
      make_sharded_store(spec, c.precision, device_under_test(), strategy_of(c.strategy), c.offload, *self, *self, true);
};

/// Offloaded weights arrive while the computing stream continues.
TEST(Offload, CopiesRunBesideTheStreamThatComputes) {
  const OffloadedStore offloaded;
  const auto current = device::Stream::current(device_under_test());
  current.synchronize();
  offloaded.store->gather(1, GatherPurpose::all);
  EXPECT_TRUE(current.idle());
  offloaded.store->acquire(1);
  offloaded.store->release(1);
}

/// Gathers are in flight when a step is abandoned and when a run ends.
TEST(Offload, WeightsOnTheirWayArriveBeforeTheirMemoryIsFreed) {
  // The simulated device reports its errors at the next call.
  const auto next_call = [] { return at::ones({4}, device_under_test()).sum().item<float>(); };
  {
    const OffloadedStore offloaded;
    offloaded.store->gather(1, GatherPurpose::all);
    offloaded.store->abandon_step();
    EXPECT_EQ(next_call(), 4.0F);
    offloaded.store->gather(1, GatherPurpose::all);
  }
  EXPECT_EQ(next_call(), 4.0F);
}

TEST(Offload, ActivationsAreCopiedBesideTheStreamThatComputes) {
  const c10::Device device = device_under_test();
  OffloadedActivations kept(device);
  const at::Tensor x = at::ones({4}, device), back = at::zeros({4}, device);
  const auto current = device::Stream::current(device);
  current.synchronize();
  kept.keep(0, x);
  EXPECT_TRUE(current.idle());
  EXPECT_TRUE(kept.fetch(0, back, back, /*last=*/true).equal(x));
}

}  // namespace
}  // namespace qft::parallel::testing
