// The purpose of sharding: traffic as the action list says, to the byte, and the memory of a slice.
#include "qft/comm/device_communicator.h"
#include "qft/comm/session.h"
#include "qft/plan/memory_plan.h"

#include "plan/traffic.h"
#include "support/world.h"
#include "tiny_run.h"
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

namespace qft::parallel::testing {
namespace {

constexpr const char* kSharded[] = {"zero1", "zero2", "shard_grad_op", "zero3"};

/// Sequences of step `s` in micro-batches of one, as TinyRun::step(s, 1) distributes them to this rank.
std::pair<int, int> micros_and_most() {
  const int bins = static_cast<int>(global_batch(0).size()), size = world().size(), rank = world().rank();
  return {(bins - rank + size - 1) / size, (bins + size - 1) / size};
}

plan::Traffic counted(const comm::Communicator& comm) {
  const auto bytes = [&](comm::OpKind kind) { return comm.counters().bytes[static_cast<std::size_t>(kind)]; };
  return {bytes(comm::OpKind::all_gather), bytes(comm::OpKind::reduce_scatter)};
}

TEST(Traffic, IsWhatTheActionListSaysToTheByte) {
  for (const char* strategy : kSharded)
    for (const bool lora : {false, true})
      for (const bool tied : {false, true})
        for (const int group : {1, 2})
          for (const std::int64_t prefetch_budget : {group == 1 ? std::int64_t{1} : std::int64_t{1} << 40}) {
            TinyRun run({.tied = tied,
                         .lora = lora,
                         .recompute = true,
                         .group = group,
                         .strategy = strategy,
                         .prefetch_budget = prefetch_budget,
                         .precision = optim::Precision::bf16()},
                        world());
            auto& shard = run.layout().groups().slices();
            run.step(0, 1);
            shard.reset_counters();
            run.step(1, 1);
            const plan::Traffic got = counted(shard);
            const auto [micros, max_micro_batches] = micros_and_most();
            const plan::Traffic want = plan::step_traffic(run.list(micros, max_micro_batches), run.spec(),
                                                          run.layout().strategy(), optim::Precision::bf16(), shard.size());
            SCOPED_TRACE(fmt::format("{} {} {} group {} budget {}", strategy, lora ? "LoRA" : "full", tied ? "tied" : "untied",
                                     group, prefetch_budget));
            EXPECT_EQ(got.all_gather, want.all_gather);
            EXPECT_EQ(got.reduce_scatter, want.reduce_scatter);
            if (shard.size() > 1) {
              EXPECT_GT(got.all_gather, 0U);
            }
          }
}

TEST(Traffic, BreadthFirstGathersAnNthOfDepthFirst) {
  const auto gathered = [&](int group) {
    TinyRun run({.tied = false, .lora = true, .group = group, .strategy = "zero3"}, world());
    run.step(0, 1);
    run.layout().groups().slices().reset_counters();
    run.step(1, 1);
    return counted(run.layout().groups().slices()).all_gather;
  };
  const auto max_micro_batches = static_cast<std::uint64_t>(micros_and_most().second);
  const std::uint64_t once = gathered(9), each = gathered(1);
  // The exception is the tail of a step, which prefetches for the next step only; so each step counts the same.
  EXPECT_EQ(each, max_micro_batches * once);
}

TEST(Memory, Zero3HoldsItsShareAndThePrefetchBudget) {
  for (const bool lora : {false, true}) {
    const Case c{.tied = false, .lora = lora, .recompute = true, .group = 9, .precision = optim::Precision::bf16()};
    TinyRun whole(
        [&] {
          Case d = c;
          d.strategy = "ddp";
          return d;
        }(),
        world());
    TinyRun sharded(
        [&] {
          Case d = c;
          d.strategy = "zero3";
          return d;
        }(),
        world());
    for (TinyRun* run : {&whole, &sharded}) run->step(0, 1);
    const StoreMemory all = whole.reader().memory(), mine = sharded.reader().memory();
    const std::int64_t ranks = world().size();
    std::int64_t largest = 0;
    const auto units = sharded.reader().gathered_bytes();
    for (const auto& u : units) largest = std::max(largest, u.total());
    // Padding: at most 16 elements per rank, buffer and unit.
    const std::int64_t padding = 16 * 2 * 4 * static_cast<std::int64_t>(units.size());
    EXPECT_LE(mine.weights, all.weights / ranks + padding);
    EXPECT_LE(mine.grads, all.grads / ranks + padding);
    EXPECT_LE(sharded.optimizer().bytes(), whole.optimizer().bytes() / ranks + 3 * padding);
    EXPECT_LE(mine.gathered_peak, 2 * largest) << "one unit in use, one on its way";
    EXPECT_EQ(all.gathered_peak, 0);
    // Only the weights that the next step starts with stay.
    EXPECT_EQ(mine.gathered, lora ? units[0].frozen : 0);
    if (world().size() > 1) {
      EXPECT_GT(mine.gathered_peak, 0);
    }
  }
}

TEST(Memory, IsWhatThePlanSays) {
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    for (const bool lora : {false, true})
      for (const Offload& offload : {Offload{}, Offload{true, true, false}})
        for (const auto& precision : {optim::Precision::bf16(), optim::Precision::pure_bf16()}) {
          const Case c{.tied = lora,
                       .lora = lora,
                       .recompute = true,
                       .group = 2,
                       .strategy = strategy,
                       .prefetch_budget = 20000,
                       .offload = offload,
                       .precision = precision,
                       .optim = lora == offload.any() ? "lion" : "adamw"};
          TinyRun run(c, world());
          for (int s = 0; s < 2; ++s) run.step(s, 1);
          plan::RunPlan planned = run.instance().plan();
          planned.schedule.recompute = true;
          planned.shape = {.tokens = 64};
          const auto plan = plan::plan_memory(planned);
          SCOPED_TRACE(fmt::format("{} {} {} {}", strategy, lora ? "LoRA" : "full", offload.any() ? "offloaded" : "",
                                   c10::toString(precision.grad)));
          const StoreMemory held = run.reader().memory();
          EXPECT_EQ(plan.gathered, held.gathered_peak);
          EXPECT_EQ(plan.host, held.host + (offload.optimizer ? run.optimizer().bytes() : 0));
          EXPECT_EQ(plan.weights, held.weights);
          EXPECT_EQ(plan.gradients, held.grads_peak);
          if (!offload.optimizer) {
            EXPECT_EQ(plan.optimizer, run.optimizer().bytes());
          }
        }
}

/// The first update of AdamW is proportional to the learning rate.
TEST(LearningRate, OfAParameterHoldsWhereverItIsCut) {
  for (const char* strategy : {"ddp", "zero1", "zero3"}) {
    const auto moved = [&](double factor) {
      TinyRun run({.lora = true, .strategy = strategy, .lora_b_rate = factor}, world());
      std::vector<double> before = run.weights(), after;
      run.step(0, 1);
      after = run.weights();
      for (std::size_t i = 0; i < after.size(); ++i) after[i] -= before[i];
      return std::pair(run.spec(), after);
    };
    const auto [spec, once] = moved(1.0);
    const std::vector<double> faster = moved(16.0).second;
    std::size_t at = 0;
    for (const auto& unit : spec.units)
      for (const auto& p : unit.params)
        for (std::int64_t i = 0; p.trainable && i < p.numel; ++i, ++at)
          ASSERT_NEAR(faster[at], once[at] * (p.role == model::Role::lora_b ? 16 : 1), 1e-12)
              << strategy << " " << p.name << " " << i;
    ASSERT_EQ(at, once.size());
  }
}

/// Returns the square of each unit's norm if every element of a counted parameter has the gradient 1 on every rank.
std::vector<double> square_sums(WeightStore& store, const model::ModelSpec& spec, comm::Communicator& comm) {
  store.start_step({comm.rank(), 1, comm.size()});
  for (int u = spec.num_units(); u-- > 0;) {
    const auto& unit = spec.units[static_cast<std::size_t>(u)];
    for (const auto& p : unit.params)
      if (p.trainable) store.grads(u).narrow(0, p.offset, p.numel).fill_(1);
    if (unit.trainable_numel > 0) store.reduce(u);
  }
  store.finish_reductions();
  std::vector<double> sums = store.local_grad_square_sums();
  comm.all_reduce(sums.data(), sums.size(), DType::f64);
  for (double& sum : sums) sum /= comm.size() * comm.size();
  return sums;
}

TEST(Norm, CountsWhatThisRankIsToCount) {
  auto spec = make_spec({.lora = false});
  std::vector<double> counted;  // elements of each unit
  for (auto& unit : spec.units) {
    counted.push_back(0.0);
    for (auto& p : unit.params) {
      p.first_holder = !p.path.ends_with("layernorm.weight") && p.path.find("k_proj") == std::string::npos;
      if (p.first_holder) counted.back() += static_cast<double>(p.numel);
    }
  }
  const auto precision = optim::Precision::fp64();
  const auto devices = comm::make_device_communicator(world(), device_under_test(), "norm");
  for (const ReductionOrder reduction_order : {ReductionOrder::as_ready, ReductionOrder::by_micro_batch}) {
    const auto store = make_replicated_store(spec, precision, device_under_test(), *devices, true, reduction_order, 1 << 12);
    EXPECT_EQ(square_sums(*store, spec, world()), counted);
  }
  const auto self = comm::make_self_communicator();
  for (const char* strategy : {"zero1", "zero2", "zero3"}) {
    const auto store = make_sharded_store(spec, precision, device_under_test(), strategy_of(strategy), {}, *devices, *self, true);
    EXPECT_EQ(square_sums(*store, spec, world()), counted) << strategy;
  }
}

TEST(Norm, OfWhatSeveralRanksHoldTheFirstCounts) {
  const auto one = make_spec({.lora = true});
  const int rank = world().rank(), ranks = world().size();
  const comm::Mesh tensor({.replicate = 1, .tensor = ranks}, rank, ranks), data({}, rank, ranks);
  for (const auto& p : one.units[1].params) EXPECT_TRUE(is_first_holder(p, data)) << p.path;
  if (world().size() > one.config.num_heads) GTEST_SKIP() << "more ranks than the model has heads";
  const auto spec = model::ModelSpec::build(one.config, one.finetuning, one.adapter, {}, one.head, one.freeze,
                                            {world().rank(), world().size()});
  for (const auto& p : spec.units[1].params) {
    const bool row_split = p.path.find("o_proj") == std::string::npos && p.path.find("down_proj") == std::string::npos;
    const bool shared = p.path.ends_with("layernorm.weight") || p.path.ends_with(row_split ? "lora_A.weight" : "lora_B.weight") ||
                        p.path.find("k_proj") != std::string::npos || p.path.find("v_proj") != std::string::npos;  // one key head
    EXPECT_EQ(is_first_holder(p, tensor), !shared || world().rank() == 0) << p.path;
  }
}

TEST(Released, WeightsCannotBeReadByAStaleView) {
  TinyRun run({.tied = false, .strategy = "zero3"}, world());
  if (world().size() == 1) GTEST_SKIP() << "one rank holds everything";
  auto& store = run.reader();
  const model::UnitBuffers& held = store.acquire(1);
  const auto generation = held.generation;
  const at::Tensor view = held.trainable.narrow(0, 0, 64).view({8, 8});
  EXPECT_NO_THROW(at::mm(view, view));
  store.release(1);
  EXPECT_EQ(held.generation, 0U);
  EXPECT_THROW(at::mm(view, view), std::exception);
  EXPECT_NE(store.acquire(1).generation, generation);
  store.release(1);
}

}  // namespace
}  // namespace qft::parallel::testing
