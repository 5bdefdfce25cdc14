#include "qft/plan/simulation.h"

#include "qft/parallel/groups.h"

#include "plan/traffic.h"
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace qft::plan {
namespace {

model::ModelSpec tiny(bool lora, std::int64_t window = 0, const model::WeightStorage& weight_storage = {}) {
  std::string text = R"({"model_type":"qwen2","hidden_size":64,"intermediate_size":128,"num_hidden_layers":6,)"
                     R"("num_attention_heads":4,"vocab_size":512,"tie_word_embeddings":false})";
  if (window > 0) text.insert(1, fmt::format(R"("use_sliding_window":true,"max_window_layers":1,"sliding_window":{},)", window));
  model::LoraConfig config;
  if (lora) {
    config.rank = 2;
    config.alpha = 4;
    config.set_targets("all");
  }
  return model::ModelSpec::build(model::ModelConfig::parse(text, "tiny"),
                                 lora ? model::Finetuning::adapter : model::Finetuning::full, config, weight_storage);
}

Workload rows(int count, std::int64_t tokens) {
  MicroShape micro;
  micro.add_sequence(tokens, tokens / 2);
  Workload w;
  w.steps = {{std::vector<MicroShape>(static_cast<std::size_t>(count), micro), count, count * tokens}};
  w.largest = micro;
  return w;
}

Machine machine(double gb_s, double tflops = 1.0) {
  Machine m;
  m.matmul_tflops_bf16 = tflops;
  m.narrow_efficiency = m.attention_efficiency = 1;
  m.memory_gb_s = 1000 * tflops;
  m.network_gb_s = gb_s;
  return m;
}

/// Gathers one unit ahead unless `prefetch_budget` says otherwise: with so few layers the default would keep most units.
RunPlan run_plan(const model::ModelSpec& spec, const char* strategy, int ranks, std::int64_t group,
                 std::int64_t prefetch_budget = 1, const char* optim = "adamw") {
  RunPlan run;
  run.spec = std::make_shared<const model::ModelSpec>(spec);
  run.precision = optim::Precision::bf16();
  run.rule = &optim::rule_of(optim);
  run.shape = {.tokens = 32};
  run.sharding = parallel::make_sharding(parallel::strategy_of(strategy), {}, ranks, ranks);
  run.sharding.prefetch_budget = prefetch_budget;
  run.schedule = parallel::make_schedule(run.sharding);
  run.schedule.group = group;
  run.schedule.recompute = true;
  return run;
}

TEST(Work, CountsTheOperationsOfALayer) {
  const auto spec = tiny(true);
  MicroShape micro;
  micro.add_sequence(10, 4);
  micro.add_sequence(6, 2);
  EXPECT_EQ(micro.pairs(), 55 + 21);
  EXPECT_EQ(micro.pairs(6), 45 + 21);
  EXPECT_EQ(micro.pairs(2), 19 + 11);
  const Work w = forward_work(spec, 1, micro, at::kBFloat16);
  const double weights = 4 * 64 * 64 + 3 * 64 * 128, sides = 4 * 128 + 3 * 192;
  EXPECT_EQ(w.matmul, 2 * 16 * weights);
  EXPECT_EQ(w.narrow, 2 * 16 * 2 * sides);
  EXPECT_EQ(w.attention, 4 * 76 * 64);
  const auto sliding = tiny(true, 2);
  EXPECT_EQ(forward_work(sliding, 1, micro, at::kBFloat16).attention, w.attention) << "the first layer has no window";
  EXPECT_EQ(forward_work(sliding, 2, micro, at::kBFloat16).attention, 4 * 30 * 64);
  EXPECT_EQ(backward_work(sliding, 2, micro, at::kBFloat16, false, true).attention, 10 * 30 * 64);
  // In a frozen layer only the input has a gradient; recomputation adds a forward pass.
  const Work b = backward_work(spec, 2, micro, at::kBFloat16, false, true),
             r = backward_work(spec, 2, micro, at::kBFloat16, true, true);
  EXPECT_EQ(b.matmul, w.matmul);
  EXPECT_EQ(b.narrow, 2 * w.narrow);
  EXPECT_EQ(r.matmul, b.matmul + w.matmul);
  EXPECT_EQ(backward_work(tiny(false), 2, micro, at::kBFloat16, false, true).matmul, 2 * w.matmul);
  EXPECT_EQ(forward_work(spec, spec.head_unit(), micro, at::kBFloat16).matmul, 4.0 * 6 * 64 * 512);
}

TEST(Work, OfASequencesObjectiveComputesTheLogitsTwice) {
  const auto spec = tiny(true);
  MicroShape micro;
  micro.add_sequence(10, 4);
  const auto work = [&](parallel::ObjectiveKind kind) {
    Work w = forward_work(spec, spec.head_unit(), micro, at::kBFloat16, kind);
    return w += backward_work(spec, spec.head_unit(), micro, at::kBFloat16, false, true, kind);
  };
  const Work once = work(parallel::ObjectiveKind::row_local), twice = work(parallel::ObjectiveKind::sequence_level);
  EXPECT_EQ(once.matmul, 4.0 * 4 * 64 * 512);
  EXPECT_EQ(twice.matmul, 6.0 * 4 * 64 * 512);
  EXPECT_GT(twice.bytes, once.bytes);
}

TEST(Simulation, OfOneRankIsItsCompute) {
  const auto spec = tiny(true);
  const Workload work = rows(3, 32);
  const Machine m = machine(1);
  const StepTime t = simulate(run_plan(spec, "ddp", 1, 1), m, work);
  double seconds_of_blocks = 0;
  for (int block = 0; block < spec.num_units(); ++block)
    for (const MicroShape& micro : work.steps[0].micros) {
      seconds_of_blocks += seconds(forward_work(spec, block, micro, at::kBFloat16), m, at::kBFloat16);
      if (block > 0)
        seconds_of_blocks += seconds(backward_work(spec, block, micro, at::kBFloat16, true, block > 1), m, at::kBFloat16);
    }
  const double update = static_cast<double>(spec.num_params(true)) * (3 * 4 + 2 * 4 + 4 * 4 + 2) / (m.memory_gb_s * 1e9);
  EXPECT_NEAR(t.step, seconds_of_blocks + update, 1e-3 * t.step);  // alignment gaps are updated too
  EXPECT_DOUBLE_EQ(t.step, t.compute);
  const StepTime lion = simulate(run_plan(spec, "ddp", 1, 1, 1, "lion"), m, work);  // reads and writes one value less per element
  EXPECT_NEAR(t.step - lion.step, static_cast<double>(spec.num_params(true)) * 2 * 4 / (m.memory_gb_s * 1e9), 0.01 * update);
  EXPECT_EQ(t.wire + t.gather_wait + t.reduce_wait, 0);
}

/// Gradients of Muon's matrices go to owners and back; its update also computes.
TEST(Simulation, CountsWhatAnOptimizerMovesAndComputes) {
  const auto spec = tiny(false);
  const Workload work = rows(4, 32);
  const Machine m = machine(1);
  const auto by = [&](const char* optim, int ranks) {
    return simulate(run_plan(spec, ranks > 1 ? "zero3" : "ddp", ranks, 1, 1, optim), m, work);
  };
  double matrices = 0;
  for (const auto& unit : spec.units)
    for (const auto& p : unit.params)
      if (unit.kind == model::UnitSpec::Kind::layer && p.shape.size() == 2) matrices += static_cast<double>(p.numel);
  EXPECT_NEAR(by("muon", 4).reduce_bytes - by("lion", 4).reduce_bytes, 2 * (matrices / 4) * 4 * 3 / 4, 0.01 * matrices);
  EXPECT_EQ(by("muon", 1).reduce_bytes, 0);
  EXPECT_GT(by("muon", 1).compute, by("adamw", 1).compute);
  EXPECT_LT(by("adamw_8bit", 1).compute, by("lion", 1).compute) << "two bytes per element, not four";
}

TEST(Memory, OfTheOptimizerIsItsRulesState) {
  const auto spec = tiny(false);
  const auto optimizer = [&](const char* optim) {
    return static_cast<double>(plan_memory(run_plan(spec, "zero3", 4, 1, 1, optim)).optimizer);
  };
  const double masters = optimizer("sgd"), each = (optimizer("adamw") - masters) / 2;
  EXPECT_DOUBLE_EQ(optimizer("lion") - masters, each);
  EXPECT_LT(optimizer("muon"), optimizer("adamw"));
  EXPECT_LT(optimizer("adamw_8bit"), optimizer("lion")) << "includes one embedding in fp32";
  EXPECT_LT(optimizer("adafactor") - masters, 0.1 * each);
}

/// A separate reference model: under zero3 a forward pass gathers each of its units once.
TEST(Simulation, CountsTheReferencesPasses) {
  const auto spec = tiny(true), other = tiny(false);
  const double weights = 2.0 * static_cast<double>(other.num_params(false));
  const Machine m = machine(1e6);
  for (const char* strategy : {"ddp", "zero3"}) {
    SCOPED_TRACE(strategy);
    RunPlan run = run_plan(spec, strategy, 4, 5, 0);
    run.objective.kind = parallel::ObjectiveKind::sequence_level;
    run.micro_batches = 5;
    const StepTime alone = simulate(run, m, rows(5, 32));
    run.reference_model = std::make_shared<const model::ModelSpec>(other);
    const StepTime beside = simulate(run, m, rows(5, 32));
    EXPECT_NEAR(beside.gather_bytes - alone.gather_bytes, run.sharding.strategy.weights ? weights * 3 / 4 : 0.0, 0.02 * weights);
    EXPECT_EQ(beside.reduce_bytes, alone.reduce_bytes);
    Work forward;
    for (int block = 0; block <= other.head_unit(); ++block)
      forward += forward_work(other, block, rows(1, 32).largest, at::kBFloat16, run.objective.kind);
    EXPECT_NEAR(beside.compute - alone.compute, 5 * seconds(forward, m, at::kBFloat16), 1e-6 * alone.compute);
  }
}

/// Stage kto first passes the other answers: through the policy without gradients, and through the reference.
TEST(Simulation, OfKtoTrainsHalfAndEstimatesWithTheRest) {
  const auto spec = tiny(false);
  MicroShape pair;
  pair.add_sequence(32, 16), pair.add_sequence(32, 16);
  Workload work;
  work.steps = {{{pair, pair}, 2, 128}};
  work.largest = pair;
  const Workload kto = with_estimates(work);
  ASSERT_EQ(kto.steps[0].before.size(), 2U);
  EXPECT_EQ(kto.steps[0].micros[0].tokens, 32);
  EXPECT_EQ(kto.steps[0].micros[0].labels, 16);
  EXPECT_EQ(kto.largest.tokens, 64) << "whole micro-batches are read";
  const RunPlan run = run_plan(spec, "zero3", 2, 2, 1);
  const StepTime pairs = simulate(run, machine(1), work), t = simulate(run, machine(1), kto);
  EXPECT_LT(t.compute, 0.8 * pairs.compute);
  EXPECT_GT(t.compute, 0.5 * pairs.compute);
  EXPECT_GT(t.gather_bytes, 1.3 * pairs.gather_bytes);
  EXPECT_EQ(t.tokens, pairs.tokens);
}

TEST(Memory, OfAReferenceIsItsWeightsAndItsPasses) {
  const auto spec = tiny(true), other = tiny(false);
  for (const int ranks : {1, 4}) {
    RunPlan run = run_plan(spec, ranks > 1 ? "zero3" : "ddp", ranks, 1, 1);
    const MemoryPlan alone = plan_memory(run);
    run.reference_model = std::make_shared<const model::ModelSpec>(other);
    const MemoryPlan beside = plan_memory(run);
    const double weights = 2.0 * static_cast<double>(other.num_params(false)) / ranks;
    EXPECT_EQ(alone.reference, 0);
    EXPECT_GT(static_cast<double>(beside.reference), weights);
    EXPECT_EQ(beside.total(), alone.total() + beside.reference);
    EXPECT_EQ(plan_memory(reference_passes(run)).weights, static_cast<std::int64_t>(weights));
  }
}

TEST(Simulation, ReceivesWhatTheActionListMoves) {
  const auto plain = tiny(true), full = tiny(false), quantized = tiny(true, 0, model::WeightStorage::in({ops::QuantFormat::nf4}));
  for (const auto* spec : {&plain, &full, &quantized})
    for (const char* strategy : {"zero1", "zero2", "shard_grad_op", "zero3"})
      for (const int ranks : {2, 3})
        for (const std::int64_t group : {1, 2, 5}) {
          const RunPlan run = run_plan(*spec, strategy, ranks, group, 0);
          const auto units = gathered_bytes(run);
          const auto list = parallel::insert_prefetches(parallel::training_actions(*spec, run.schedule, {5, 5}), units,
                                                        prefetch_budget(run, units));
          const auto traffic = step_traffic(list, *spec, run.sharding.strategy, run.precision, ranks);
          const StepTime t = simulate(run, machine(1), rows(5, 32));
          EXPECT_NEAR(t.gather_bytes, static_cast<double>(traffic.all_gather), 0.5) << strategy << ranks << group;
          EXPECT_NEAR(t.reduce_bytes, static_cast<double>(traffic.reduce_scatter), 0.5) << strategy << ranks << group;
        }
}

TEST(Simulation, DecodesAQuantizedBaseOnceAPass) {
  const auto plain = tiny(true), quantized = tiny(true, 0, model::WeightStorage::in({ops::QuantFormat::nf4}));
  double bytes = 0;
  for (const auto& unit : quantized.units) bytes += static_cast<double>(2 * unit.quantized_numel + unit.packed_bytes);
  ASSERT_GT(bytes, 0);
  const auto more = [&](const char* strategy, std::int64_t group) {
    const auto compute = [&](const model::ModelSpec& spec) {
      return simulate(run_plan(spec, strategy, 2, group), machine(1), rows(4, 32)).compute;
    };
    return (compute(quantized) - compute(plain)) * machine(1).memory_gb_s * 1e9 / bytes;
  };
  EXPECT_NEAR(more("zero3", 4), 2, 1e-6);
  EXPECT_NEAR(more("zero3", 1), 2 * 4, 1e-6);
  // If nothing is transferred, a layer stays decoded at the ends and turning points of a pass.
  EXPECT_NEAR(more("ddp", 4), 2 - 1.0 / 6, 1e-6);
  EXPECT_NEAR(more("ddp", 1), 2 * 4 - 7.0 / 6, 1e-6);
}

TEST(Simulation, OfASlowWireIsTheWire) {
  const auto spec = tiny(true);
  for (const std::int64_t group : {1, 4}) {
    const StepTime t = simulate(run_plan(spec, "zero3", 2, group), machine(1e-3, 1e3), rows(4, 32));
    const double carried = (t.gather_bytes + t.reduce_bytes) / 1e6;
    EXPECT_NEAR(t.wire, carried, 1e-9 * carried);
    EXPECT_NEAR(t.step, carried, 0.02 * carried) << group;  // the update, and the pause before the next step's first weights
  }
}

TEST(Simulation, OfAFastWireIsTheCompute) {
  const auto spec = tiny(true);
  const StepTime t = simulate(run_plan(spec, "zero3", 4, 1), machine(1e6), rows(4, 64));
  EXPECT_NEAR(t.step, t.compute, 1e-3 * t.compute);
}

TEST(Simulation, LiesBetweenFullOverlapAndNone) {
  const auto spec = tiny(true);
  for (const char* strategy : {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    for (const double gb_s : {0.01, 0.1, 1.0, 10.0})
      for (const std::int64_t group : {1, 3, 8}) {
        const StepTime t = simulate(run_plan(spec, strategy, 4, group), machine(gb_s), rows(8, 64));
        EXPECT_GE(t.step, std::max(t.compute, t.wire) * 0.999) << strategy << gb_s << group;
        EXPECT_LE(t.step, t.serial() * 1.001) << strategy << gb_s << group;
        EXPECT_NEAR(t.step, t.compute + t.gather_wait + t.reduce_wait, 1e-9) << strategy << gb_s << group;
      }
}

TEST(Simulation, BreadthFirstHidesTheWire) {
  const auto spec = tiny(true);
  const StepTime first = simulate(run_plan(spec, "zero3", 2, 1), machine(0.2), rows(8, 64));
  const StepTime all = simulate(run_plan(spec, "zero3", 2, 8), machine(0.2), rows(8, 64));
  EXPECT_GT(first.gather_bytes, 6 * all.gather_bytes);
  EXPECT_GT(first.step, 1.5 * all.step);
}

TEST(Simulation, TransfersTakeComputeWhereTheyShareCores) {
  const auto spec = tiny(true);
  Machine m = machine(0.5);
  const StepTime before = simulate(run_plan(spec, "zero3", 2, 8), m, rows(8, 2048));
  m.compute_s_per_gb = 1.0;  // half of the cores while the wire is busy
  const StepTime after = simulate(run_plan(spec, "zero3", 2, 8), m, rows(8, 2048));
  const double takes = (after.gather_bytes + after.reduce_bytes) * 1e-9;
  EXPECT_LE(after.step - before.step, takes);
  EXPECT_GE(after.step - before.step, 0.8 * takes);  // less if nothing computes anyway
}

/// The tiny model on the first of ranks that share matrices.
RunPlan shared_plan(int tensor, const char* strategy = "ddp", int data_ranks = 1) {
  const auto whole = tiny(false);
  RunPlan run = run_plan(model::ModelSpec::build(whole.config, model::Finetuning::full, {}, {}, whole.head, {}, {0, tensor}),
                         strategy, data_ranks, 1);
  run.shape = {.tokens = 4096};
  run.sharding.tensor_ranks = tensor;
  return run;
}

TEST(Simulation, WaitsForExchangesOfRows) {
  Machine m = machine(1);
  m.node_gb_s = 2;
  m.ranks_per_node = 4;
  const Workload work = rows(3, 64);
  const StepTime alone = simulate(shared_plan(1), m, work);
  EXPECT_EQ(alone.tensor_bytes + alone.tensor_wait, 0);
  for (const int tensor : {2, 4}) {
    const StepTime t = simulate(shared_plan(tensor), m, work);
    // 14 exchanges of all rows in each of 6 layers, 2 of the embedding, 2 of the labels' rows, which are half of the rows.
    const double rows_of_all = 3 * (6 * 14 + 2 + 1) * 64.0 * 64 * 2;
    EXPECT_NEAR(t.tensor_bytes, rows_of_all * (tensor - 1) / tensor, 0.02 * t.tensor_bytes);
    EXPECT_NEAR(t.tensor_wait, t.tensor_bytes / 2e9, 1e-12);
    EXPECT_NEAR(t.step, t.compute + t.tensor_wait + t.reduce_wait, 1e-12);
    EXPECT_LT(t.compute, 1.6 * alone.compute / tensor);
  }
  const double inside = simulate(shared_plan(4), m, work).tensor_wait;
  m.ranks_per_node = 2;  // the slower network carries what a node's links do not
  EXPECT_NEAR(simulate(shared_plan(4), m, work).tensor_wait, 2 * inside, 1e-9);
  m.node_latency_us = 100;
  const StepTime late = simulate(shared_plan(2), m, work);
  EXPECT_GT(late.tensor_wait - late.tensor_bytes / 2e9, 1e-4 * 3 * (6 * 14 + 4));
}

TEST(Memory, OfTensorRanksFallsWithTheirNumber) {
  const MemoryPlan one = plan_memory(shared_plan(1));
  for (const int tensor : {2, 4}) {
    const MemoryPlan each = plan_memory(shared_plan(tensor));
    for (const auto part : {&MemoryPlan::activations, &MemoryPlan::weights, &MemoryPlan::optimizer, &MemoryPlan::gradients})
      EXPECT_NEAR(static_cast<double>(each.*part) * tensor / static_cast<double>(one.*part), 1.0, 0.06) << tensor;
    EXPECT_LT(each.buffers, one.buffers * 3 / 2) << "collected rows are whole";
  }
}

/// The tiny model on the first of ranks that share sequences.
RunPlan context_plan(int context) {
  const auto whole = tiny(false);
  RunPlan run = run_plan(model::ModelSpec::build(whole.config, model::Finetuning::full, {}, {}, whole.head, {}, {}, {0, context}),
                         "ddp", 1, 1);
  run.shape = {.tokens = 4096};
  run.sharding.context_ranks = context;
  return run;
}

/// Evaluations and references divide rows as training does; a decoder has all rows on each rank.
TEST(Memory, OfForwardPassesIsThatOfTheRanksRows) {
  const auto buffers = [](int context, bool decodes) {
    RunPlan run = context_plan(context);
    run.training = false;
    run.decodes = decodes;
    return plan_memory(run).buffers;
  };
  EXPECT_EQ(buffers(1, true), buffers(1, false));
  EXPECT_LT(buffers(4, false), buffers(1, false) * 3 / 4);
  EXPECT_LT(buffers(4, false), buffers(4, true) * 3 / 4);
  const auto reference = [](int context) {
    RunPlan run = context_plan(context);
    run.decodes = true;  // for evaluations of the policy
    run.reference_model = run.spec;
    return plan_memory(reference_passes(run)).buffers;
  };
  EXPECT_LT(reference(4), reference(1) * 3 / 4);
}

/// Each group of several ranks has a communicator.
TEST(Memory, OfCommunicatorsGrowsWithTheGroupsOfTheLayout) {
  const auto groups = [](const char* strategy, int data, int context, int tensor, bool optimizer = true) {
    parallel::Sharding sharding = parallel::make_sharding(parallel::strategy_of(strategy), {}, data, 2);
    sharding.context_ranks = context, sharding.tensor_ranks = tensor;
    return parallel::num_device_groups(sharding, optimizer);
  };
  EXPECT_EQ(groups("ddp", 1, 1, 1), 0);
  for (const char* strategy : {"ddp", "zero3"}) {
    EXPECT_EQ(groups(strategy, 4, 1, 1), 1) << strategy;
    EXPECT_EQ(groups(strategy, 4, 2, 1), 2) << strategy << ": and heads";
    EXPECT_EQ(groups(strategy, 4, 1, 2), 3) << strategy << ": tensor and owners";
    EXPECT_EQ(groups(strategy, 1, 2, 2), 4) << strategy;
    EXPECT_EQ(groups(strategy, 4, 2, 2, /*optimizer=*/false), 3) << strategy;
  }
  EXPECT_EQ(groups("hsdp", 4, 1, 1), 2) << "slices and copies";
}

TEST(Simulation, PaysALatencyForEachHop) {
  const auto spec = tiny(true);
  Machine m = machine(1e6, 1e6);
  m.network_latency_us = 1000;
  // The single bucket is all-reduced in 2 x 3 hops; the ranks' agreement takes two more.
  EXPECT_NEAR(simulate(run_plan(spec, "ddp", 4, 1), m, rows(2, 32)).step, 8e-3, 1e-4);
}

}  // namespace
}  // namespace qft::plan
