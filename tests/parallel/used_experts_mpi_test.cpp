// If few experts are used, only these are gathered.
#include "qft/comm/device_communicator.h"
#include "qft/core/error.h"
#include "qft/parallel/sharded_buffer.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "equivalence.h"
#include "support/world.h"
#include <ATen/ops/arange.h>

namespace qft::parallel::testing {
namespace {

constexpr int kExperts = 16;
constexpr int kUnit = 1;  // a layer with experts

/// Returns the begins of the experts' rows, with one row for each of `experts`.
std::vector<std::int64_t> begins_of(const std::set<int>& experts) {
  std::vector<std::int64_t> begins = {0};
  for (int e = 0; e < kExperts; ++e) begins.push_back(begins.back() + static_cast<std::int64_t>(experts.count(e)));
  return begins;
}

/// A sharded store in which each weight equals its index.
class Stored {
 public:
  Stored(bool lora, bool offloaded)
      : lora_(lora),
        spec_(make_spec({.model_type = "qwen3_moe", .lora = lora, .experts = kExperts})),
        shard_(comm::make_device_communicator(world(), device_under_test(), "shard")),
        self_(comm::make_self_communicator()),
        store_(make_sharded_store(spec_, optim::Precision::fp64(), device_under_test(), strategy_of("zero3"),
                                  {.weights = offloaded}, *shard_, *self_, true)) {
    const model::Shard mine = store_->resident_shard(kUnit, part());
    mine.values.copy_(at::arange(mine.begin, mine.end(), at::kDouble));
  }

  WeightStore& store() { return *store_; }
  std::int64_t numel() const { return lora_ ? unit().frozen_numel : unit().trainable_numel; }

  /// Elements of these experts, and all non-expert elements.
  Ranges experts(const std::set<int>& which) const {
    Ranges ranges;
    for (const auto& p : unit().params)
      if (p.path.ends_with("experts.gate_up_proj") || p.path.ends_with("experts.down_proj"))
        for (const int e : which) append(ranges, {p.offset + e * p.numel / kExperts, p.offset + (e + 1) * p.numel / kExperts});
    return ranges;
  }
  Ranges rest() const {
    std::set<int> all;
    for (int e = 0; e < kExperts; ++e) all.insert(e);
    return difference({{0, numel()}}, experts(all));
  }

  /// Bytes of these elements that other ranks own, and of the whole buffer with its padding.
  std::uint64_t from_others(const Ranges& ranges) const {
    const Division division(numel(), *shard_);
    const Range own{division.chunk * division.rank, division.chunk * (division.rank + 1)};
    return static_cast<std::uint64_t>(size_of(ranges) - size_of(within(ranges, own))) * sizeof(double);
  }
  std::uint64_t whole_from_others() const {
    const Division division(numel(), *shard_);
    return static_cast<std::uint64_t>(division.chunk * (division.ranks - 1)) * sizeof(double);
  }
  /// Bytes of model weights gathered since the last call; without LoRA weights, which are always gathered whole.
  std::uint64_t gathered() {
    const auto bytes = shard_->counters().bytes[static_cast<std::size_t>(comm::OpKind::all_gather)];
    shard_->reset_counters();
    return bytes;
  }
  std::uint64_t adapter() const {
    if (!lora_) return 0;
    const Division division(unit().trainable_numel, *shard_);
    return static_cast<std::uint64_t>(division.chunk * (division.ranks - 1)) * sizeof(double);
  }

  void expect_here(const Ranges& ranges, const model::UnitBuffers& buffers) const {
    const at::Tensor all = (lora_ ? buffers.frozen : buffers.trainable).cpu();
    for (const Range& r : ranges)
      EXPECT_TRUE(all.narrow(0, r.begin, r.size()).equal(at::arange(r.begin, r.end, at::kDouble))) << r.begin << " " << r.end;
  }

 private:
  model::Part part() const { return lora_ ? model::Part::frozen : model::Part::trainable; }
  const model::UnitSpec& unit() const { return spec_.units[kUnit]; }

  bool lora_;
  model::ModelSpec spec_;
  std::unique_ptr<comm::Communicator> shard_, self_;
  std::unique_ptr<WeightStore> store_;
};

TEST(UsedExperts, CrossAloneToTheByte) {
  for (const bool lora : {false, true})
    for (const bool offloaded : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", lora ? "LoRA" : "full", offloaded ? " offloaded" : ""));
      Stored t(lora, offloaded);
      WeightStore& store = t.store();
      const int ranks = world().size(), rank = world().rank();
      std::set<int> all = {5};
      for (int r = 0; r < ranks; ++r) all.insert(10 + r);
      store.gather(kUnit, GatherPurpose::forward);
      const model::UnitBuffers& forward = store.acquire(kUnit, GatherPurpose::forward);
      EXPECT_EQ(t.gathered(), t.from_others(t.rest()) + t.adapter());
      store.gather_experts(kUnit, begins_of({5, 10 + rank}));
      EXPECT_EQ(t.gathered(), t.from_others(t.experts(all)));
      store.gather_experts(kUnit, rank == 0 ? begins_of({5}) : std::vector<std::int64_t>{});
      EXPECT_EQ(t.gathered(), 0U) << "they are here";
      t.expect_here(united(t.rest(), t.experts(all)), forward);
      store.release(kUnit);
      store.gather(kUnit, GatherPurpose::backward);
      EXPECT_EQ(t.gathered(), t.from_others(united(t.rest(), t.experts(all))) + t.adapter())
          << "the experts of forward, prefetched";
      t.expect_here(united(t.rest(), t.experts(all)), store.acquire(kUnit, GatherPurpose::backward));
      EXPECT_EQ(t.gathered(), 0U);
      EXPECT_NO_THROW(store.verify_experts(kUnit, begins_of({5, 10 + rank})));
      if (ranks > 1 || offloaded) {
        EXPECT_THROW(store.verify_experts(kUnit, begins_of({5, 0})), Error) << "a recomputed pass uses another expert";
      }
      // GatherPurpose::all gets the remaining experts.
      t.expect_here({{0, t.numel()}}, store.acquire(kUnit));
      store.release(kUnit);
      store.release(kUnit);
    }
}

/// The backward pass of two layers with experts, prefetched one after the other: the staging limit has room for only one.
TEST(UsedExperts, AreGatheredLaterWhereOthersAreOnTheirWay) {
  constexpr int kOther = 3;
  Stored t(/*lora=*/false, /*offloaded=*/false);
  WeightStore& store = t.store();
  const std::set<int> some = {1, 2, 3, 5, 8, 13};
  for (const int unit : {kUnit, kOther}) {
    store.acquire(unit, GatherPurpose::forward);
    store.gather_experts(unit, begins_of(some));
    store.release(unit);
  }
  t.gathered();
  const std::uint64_t each = t.from_others(united(t.rest(), t.experts(some)));
  store.gather(kOther, GatherPurpose::backward);
  store.gather(kUnit, GatherPurpose::backward);
  EXPECT_EQ(t.gathered(), each);
  store.acquire(kOther, GatherPurpose::backward);
  EXPECT_EQ(t.gathered(), each) << "its place is free";
  t.expect_here(united(t.rest(), t.experts(some)), store.acquire(kUnit, GatherPurpose::backward));
  EXPECT_EQ(t.gathered(), 0U);
  store.release(kOther);
  store.release(kUnit);
}

TEST(UsedExperts, OfWhichThereAreManyCrossTogetherAhead) {
  for (const bool lora : {false, true}) {
    Stored t(lora, /*offloaded=*/false);
    WeightStore& store = t.store();
    const int ranks = world().size(), rank = world().rank();
    const auto pass = [&](const std::set<int>& experts) {
      store.acquire(kUnit, GatherPurpose::forward);
      const std::uint64_t before = t.gathered();
      store.gather_experts(kUnit, begins_of(experts));
      store.release(kUnit);
      t.gathered();
      return before;
    };
    // Half of the experts on all ranks together, and one more on the last rank.
    std::set<int> some;
    for (int e = 0; e < 8; ++e)
      if (e % ranks == rank) some.insert(e);
    const std::uint64_t base = t.from_others(t.rest()) + t.adapter(), whole = t.whole_from_others() + t.adapter();
    EXPECT_EQ(pass(some), base);
    if (rank == ranks - 1) some.insert(15);
    EXPECT_EQ(pass(some), base);
    EXPECT_EQ(pass(some), whole) << "more than half were used";
    EXPECT_EQ(pass({}), whole) << "until the ranks agree";
    store.start_step({});
    store.finish_reductions();
    EXPECT_EQ(pass({3}), whole) << "more than half were used in that step";
    store.start_step({});
    store.finish_reductions();
    EXPECT_EQ(pass({}), base);
  }
}

TEST(UsedExperts, GiveTheNumbersOfOneRank) {
  for (const bool lora : {false, true})
    for (const bool reference_lane : {false, true}) {
      if (reference_lane && !lora) continue;
      Case c{.model_type = "qwen3_moe",
             .lora = lora,
             .recompute = lora,
             .dropout = lora ? 0.3 : 0.0,
             .hsdp_group = hsdp_group(),
             .experts = kExperts,
             .reference = reference_lane};
      const Reference expected = reference(c, 3);
      const std::tuple<const char*, Offload, int> ways[] = {
          {"zero3", {}, 1}, {"zero3", {true, true, false}, 2}, {"shard_grad_op", {}, 1}, {"hsdp", {}, 2}};
      for (const bool wide : {false, true})
        for (std::size_t way = 0; way < std::size(ways); ++way) {
          const auto& [strategy, offload, group] = ways[way];
          if (is_another_counts(strategy, way + wide + lora + reference_lane)) continue;
          if (world().size() == 1 && !offload.weights) continue;  // nothing to gather
          c.strategy = strategy;
          c.offload = offload;
          c.group = wide ? group : 3 - group;
          c.prefetch_budget = wide ? std::int64_t{1} << 40 : 1;
          SCOPED_TRACE(name_of(c, 1));
          expect_same(c, 1, expected, 1e-10, 1e-7);
        }
    }
}

/// Short texts, one at a time, use few of many experts.
TEST(UsedExperts, SaveBytesInAStep) {
  const auto gathered = [](int experts) {
    TinyRun run({.model_type = "qwen3_moe", .lora = true, .strategy = "zero3", .experts = experts}, world());
    run.step(0, 1);
    run.layout().groups().slices().reset_counters();
    run.step(1, 1);
    std::int64_t whole = 0;
    for (const auto& unit : run.reader().gathered_bytes()) whole += unit.gathered();
    const auto bytes = run.layout().groups().slices().counters().bytes[static_cast<std::size_t>(comm::OpKind::all_gather)];
    return static_cast<double>(bytes) / static_cast<double>(whole);
  };
  if (world().size() == 1) GTEST_SKIP() << "one rank gathers nothing";
  EXPECT_LT(gathered(256), 0.5 * gathered(5));
}

}  // namespace
}  // namespace qft::parallel::testing
