// Groups by purpose: who is in them, and steps in which several ranks do the work of one data rank.
#include "qft/comm/exchange.h"
#include "qft/comm/session.h"
#include "qft/core/error.h"
#include "qft/engine/batch_sums.h"
#include "qft/loader/loader.h"
#include "qft/parallel/groups.h"

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "equivalence.h"
#include "pack/fixture.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

/// Sizes along the axes: data ranks that hold copies, data ranks that share one, ranks that share sequences, and matrices.
struct Sizes {
  int replicas, shards, context, tensor;
};

/// All sizes that need `ranks` ranks.
std::vector<Sizes> sizes_of(int ranks) {
  std::vector<Sizes> all;
  for (int r = 1; r <= ranks; ++r)
    for (int s = 1; s <= ranks; ++s)
      for (int c = 1; c <= ranks; ++c)
        for (int t = 1; t <= ranks; ++t)
          if (r * s * c * t == ranks) all.push_back({r, s, c, t});
  return all;
}

Sharding sharding_of(const Sizes& sizes, bool sharded) {
  return {.strategy = strategy_of(sharded ? "hsdp" : "ddp"),
          .shard_ranks = sizes.shards,
          .replicas = sizes.replicas,
          .context_ranks = sizes.context,
          .tensor_ranks = sizes.tensor};
}

/// Returns the ranks of `group` in the world, in the group's order.
std::vector<int> members(comm::Communicator& group) {
  return comm::all_gather_value(group, world().rank());
}

/// Returns this rank and those that are reached by changing the coordinate of `stride` ranks, which has `size` values.
std::vector<int> along(int stride, int size) {
  const int first = world().rank() - world().rank() / stride % size * stride;
  std::vector<int> all;
  for (int i = 0; i < size; ++i) all.push_back(first + i * stride);
  return all;
}

TEST(Groups, HaveTheRanksThatTheirPurposeNeeds) {
  for (const Sizes& s : sizes_of(world().size())) {
    SCOPED_TRACE(fmt::format("{} x {} x {} x {}", s.replicas, s.shards, s.context, s.tensor));
    const Groups groups(world(), device_under_test(), sharding_of(s, /*sharded=*/true));
    EXPECT_EQ(members(groups.all()), along(1, world().size()));
    EXPECT_EQ(members(groups.tensor()), along(1, s.tensor));
    EXPECT_EQ(members(groups.context()), along(s.tensor, s.context));
    EXPECT_EQ(members(groups.slices()), along(s.tensor, s.context * s.shards));
    EXPECT_EQ(members(groups.data()), along(s.tensor * s.context, s.shards * s.replicas));
    EXPECT_EQ(members(groups.copies()), along(s.tensor * s.context * s.shards, s.replicas));
    EXPECT_EQ(members(groups.owners()), along(1, s.tensor * s.context * s.shards));
    EXPECT_EQ(&groups.owners() == &groups.slices(), s.tensor == 1);
    EXPECT_EQ(&groups.data() == &world().host(), s.context * s.tensor == 1) << "all ranks need no second group";
    int several = 0;
    for (const auto* group : {&groups.tensor(), &groups.context(), &groups.slices(), &groups.copies()})
      several += group->size() > 1;
    EXPECT_EQ(num_device_groups(sharding_of(s, true), /*optimizer=*/false), several);
    EXPECT_EQ(num_device_groups(sharding_of(s, true), /*optimizer=*/true), several + (s.tensor > 1 ? 1 : 0));
  }
}

/// If each rank has a whole copy, ranks that share sequences hold copies, whose gradients are terms.
TEST(Groups, WithoutShardsAreGroupsOfCopies) {
  for (const Sizes& s : sizes_of(world().size())) {
    if (s.shards > 1) continue;
    const Groups groups(world(), device_under_test(), sharding_of(s, /*sharded=*/false));
    EXPECT_EQ(groups.slices().backend(), "self");
    EXPECT_EQ(members(groups.copies()), along(s.tensor, s.context * s.replicas));
    EXPECT_EQ(members(groups.owners()), along(1, s.tensor));
  }
}

TEST(Groups, OfOneRankSendNothing) {
  const Groups groups(world(), device_under_test(), sharding_of({world().size(), 1, 1, 1}, /*sharded=*/true));
  for (comm::Communicator* group : {&groups.tensor(), &groups.context(), &groups.slices()}) EXPECT_EQ(group->backend(), "self");
}

TEST(Groups, HaveOneSpeakerForEachDataRank) {
  for (const Sizes& s : sizes_of(world().size())) {
    const Groups groups(world(), device_under_test(), sharding_of(s, /*sharded=*/true));
    const comm::Place place = data_place(world().rank(), world().size(), s.context, s.tensor);
    EXPECT_EQ(place, (comm::Place{groups.data().rank(), groups.data().size()})) << "known before the strategy";
    std::multiset<int> spoken;
    for (const int data_rank : comm::all_gather_value(world(), groups.is_lead() ? place.rank : -1))
      if (data_rank >= 0) spoken.insert(data_rank);
    std::vector<int> once(static_cast<std::size_t>(place.size));
    std::iota(once.begin(), once.end(), 0);
    EXPECT_TRUE(std::ranges::equal(spoken, once));
  }
}

/// Ranks of other processors may round differently, and stop or keep other models if their sums differ.
TEST(Groups, SumsAreThoseOfTheSpeakersOnAllRanks) {
  for (const Sizes& s : sizes_of(world().size())) {
    const Groups groups(world(), device_under_test(), sharding_of(s, /*sharded=*/true));
    const int rank = groups.data().rank(), size = groups.data().size();
    const double own = groups.is_lead() ? 1.0 / (3.0 + rank) : std::nan("");
    double expected = 0.0;
    for (int r = 0; r < size; ++r) expected += 1.0 / (3.0 + r);
    engine::BatchSums sums(size, 2);
    sums.set(rank, std::array{own, 1.0});
    EXPECT_EQ(sums.all_reduce(groups), (std::vector<double>{expected, static_cast<double>(size)}));
  }
}

TEST(Groups, RefuseShardingForAnotherNumberOfRanks) {
  EXPECT_THROW(Groups(world(), device_under_test(), sharding_of({world().size(), 2, 1, 1}, true)), ConfigError);
  EXPECT_THROW(data_place(0, 3, 1, 2), ConfigError);
}

TEST(Groups, OfHsdpAreRefusedByWhatTheyDivide) {
  const auto message = [](const char* noun) {
    try {
      make_sharding(strategy_of("hsdp"), {}, 4, 3, noun);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(message("rank"), "hsdp_group_size 3 does not divide the 4 ranks: start a multiple of 3 ranks, or change it");
  EXPECT_EQ(message("data rank"),
            "hsdp_group_size 3 does not divide the 4 data ranks: start a multiple of 3 data ranks, or change it");
}

/// Ranks that share a sample read the same micro-batches; the data ranks together read each sample once.
TEST(DataRanks, ReadEachSampleOnceAndTheirOtherRanksTheSame) {
  const test::TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 23);
  loader::LoaderOptions options;
  options.micro_batch_size = 2;
  options.global_batch_size = 12;
  options.num_epochs = 1;
  for (const Sizes& s : sizes_of(world().size())) {
    const Groups groups(world(), device_under_test(), sharding_of(s, /*sharded=*/true));
    const comm::Place data = data_place(world().rank(), world().size(), s.context, s.tensor);
    loader::Loader loader(pack, options, data.rank, data.size);
    std::vector<std::int64_t> counts(23);
    for (std::int64_t step = 0; step < loader.total_steps(); ++step)
      for (const loader::MicroBatch& micro : loader.next().micro_batches)
        for (const std::int64_t sample : micro.samples) ++counts[static_cast<std::size_t>(sample)];
    for (comm::Communicator* same : {&groups.tensor(), &groups.context()}) {
      std::vector<std::int64_t> all = counts;
      same->host().all_reduce(all.data(), all.size(), DType::i64);
      for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], counts[i] * same->size());
    }
    groups.data().all_reduce(counts.data(), counts.size(), DType::i64);
    EXPECT_EQ(counts, std::vector<std::int64_t>(23, 1));
  }
}

Case divided(Case c, const Sizes& s, std::string_view strategy) {
  c.strategy = strategy;
  c.hsdp_group = s.shards;
  c.context_ranks = s.context;
  c.tensor_ranks = s.tensor;
  return c;
}

constexpr std::string_view kOfLora[] = {"ddp", "zero3", "hsdp"}, kOfFull[] = {"zero1", "zero2", "hsdp"};

/// Ranks that share a data rank's work count its loss, its metrics and its gradients once.
TEST(DataRanks, OfSeveralRanksTrainAsOne) {
  for (const bool lora : {false, true}) {
    const Case plain{.tied = !lora, .lora = lora, .dropout = lora ? 0.3 : 0.0, .weighted = true};
    const Reference want = reference(plain);
    for (const Sizes& s : sizes_of(world().size()))
      for (const std::string_view strategy : lora ? kOfLora : kOfFull) {
        if (s.context == 1 || s.tensor > 1 || s.context > 3) continue;  // the other tests, the grid, more ranks than heads
        if (strategy != "hsdp" && (strategy == "ddp" ? s.shards : s.replicas) > 1) continue;
        SCOPED_TRACE(fmt::format("{}: {} copies x {} shards x {} of a sequence x {} of a matrix, LoRA {}", strategy, s.replicas,
                                 s.shards, s.context, s.tensor, lora));
        TinyRun run(divided(plain, s, strategy), world());
        for (int step = 0; step < kSteps; ++step) {
          const StepResult got = run.step(step, 2);
          const StepResult& as = want.steps[static_cast<std::size_t>(step)];
          EXPECT_NEAR(got.loss, as.loss, 1e-10 * as.loss);
          EXPECT_NEAR(got.grad_norm, as.grad_norm, 1e-10 * as.grad_norm);
          ASSERT_EQ(got.metrics.size(), as.metrics.size());
          for (const auto& [name, value] : as.metrics) EXPECT_NEAR(got.metrics.at(name), value, 1e-10 * std::abs(value)) << name;
        }
        const std::vector<double> weights = run.weights();
        ASSERT_EQ(weights.size(), want.weights.size());
        for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_NEAR(weights[i], want.weights[i], 1e-7) << i;
      }
  }
}

TEST(DataRanks, OfSeveralRanksVoteRankByRank) {
  if (world().size() > 3) GTEST_SKIP() << "more ranks than the model has heads";
  TinyRun run({.tensor_ranks = world().size()}, world());
  const StepResult result = run.step(0, 9, [](bool step_done) { return step_done; });
  EXPECT_EQ(result.stop_requests, world().size());
  EXPECT_FALSE(result.abandoned);
}

/// A unit's norm does not depend on the other units of its rank: a stage of a pipeline has fewer.
TEST(Norm, OfAUnitDoesNotDependOnTheOtherUnitsOfItsStore) {
  const auto spec = make_spec({});
  const auto sums_of = [&](const std::vector<int>& units, ReductionOrder order) {
    auto part = spec;
    for (int u = 0; u < part.num_units(); ++u)
      if (std::ranges::find(units, u) == units.end()) {
        part.units[static_cast<std::size_t>(u)].params.clear();
        part.units[static_cast<std::size_t>(u)].trainable_numel = 0;
      }
    const Groups groups(world(), device_under_test(), sharding_of({world().size(), 1, 1, 1}, /*sharded=*/false));
    const auto store =
        make_replicated_store(part, optim::Precision::fp32(), device_under_test(), groups.copies(), true, order, 1 << 12);
    store->start_step({world().rank(), 1, world().size()});
    for (int u = part.num_units(); u-- > 0;) {
      if (part.units[static_cast<std::size_t>(u)].trainable_numel == 0) continue;
      const at::Tensor grads = store->grads(u);
      for (std::int64_t i = 0; i < grads.numel(); ++i) grads[i] = std::sin(static_cast<double>(i + 7 * u + world().rank()));
      store->reduce(u);
    }
    store->finish_reductions();
    std::vector<double> sums = store->local_grad_square_sums();
    world().all_reduce(sums.data(), sums.size(), DType::f64);
    return sums;
  };
  for (const ReductionOrder order : {ReductionOrder::as_ready, ReductionOrder::by_micro_batch}) {
    const auto all = sums_of({0, 1, 2, 3, 4}, order), lower = sums_of({0, 1}, order), upper = sums_of({2, 3, 4}, order);
    for (std::size_t u = 0; u < all.size(); ++u) {
      EXPECT_GT(all[u], 0.0);
      // Three and more ranks add an element up in an order that depends on its place in its bucket.
      if (order == ReductionOrder::by_micro_batch || world().size() < 3) {
        EXPECT_EQ(all[u], lower[u] + upper[u]) << "unit " << u;
      } else {
        EXPECT_NEAR(all[u], lower[u] + upper[u], 1e-6 * all[u]) << "unit " << u;
      }
    }
  }
}

}  // namespace
}  // namespace qft::parallel::testing
