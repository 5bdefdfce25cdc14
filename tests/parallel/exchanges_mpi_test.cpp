// The bytes that the plan counts for exchanges within a step are those of a step that runs, to the byte, along each axis.
#include "qft/comm/exchange.h"
#include "qft/selftest/small_run.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/preference.h"
#include "plan/exchanges.h"
#include "support/world.h"
#include <gtest/gtest.h>

namespace qft::plan {
namespace {

using selftest::SmallCase;

constexpr int kPack = 2;

std::unique_ptr<parallel::Objective> simpo(const parallel::BatchTotals& totals) {
  return std::make_unique<engine::PreferenceLoss>(
      engine::pair_loss("simpo"), engine::PairOptions{.beta = 2.0, .gamma = 1.0, .ftx = 0.1, .rpo_alpha = 0.4}, totals);
}

/// Returns the shapes of this data rank's micro-batches, as SmallRun deals them.
std::vector<MicroShape> shapes_of(int step, int item_sequences, const comm::Communicator& data) {
  const auto batch = selftest::global_batch(step, item_sequences);
  const int items = static_cast<int>(batch.size()) / item_sequences, bins = (items + kPack - 1) / kPack;
  std::vector<MicroShape> shapes;
  for (int b = bins * data.rank() / data.size(); b < bins * (data.rank() + 1) / data.size(); ++b) {
    MicroShape& shape = shapes.emplace_back();
    for (int s = b * kPack * item_sequences; s < std::min((b + 1) * kPack, items) * item_sequences; ++s) {
      const selftest::Sequence& sequence = batch[static_cast<std::size_t>(s)];
      shape.add_sequence(static_cast<std::int64_t>(sequence.tokens.size()), static_cast<std::int64_t>(sequence.labels.size()));
    }
  }
  return shapes;
}

/// A step of all ranks along one axis, or along both.
struct Row {
  std::string name;
  SmallCase training;
  int summed = 0;  ///< numbers for each label that the objective adds up, which no plan counts
};

RunPlan plan_of(const SmallCase& c, const selftest::SmallRun& run, int data_ranks) {
  RunPlan plan;
  plan.spec = std::make_shared<const model::ModelSpec>(run.spec());
  plan.precision = c.precision;
  plan.sharding = parallel::make_sharding(parallel::strategy_of(c.strategy), {}, data_ranks, 1);
  plan.sharding.tensor_ranks = c.tensor_ranks;
  plan.sharding.context_ranks = c.context_ranks;
  plan.schedule = parallel::make_schedule(plan.sharding);
  plan.schedule.recompute = c.recompute;
  if (c.objective) plan.objective.kind = parallel::ObjectiveKind::sequence_level;
  return plan;
}

void expect_bytes_of_a_step(const Row& row) {
  SCOPED_TRACE(row.name);
  const SmallCase& c = row.training;
  selftest::SmallRun run(c, world());
  const parallel::Groups& groups = run.instance().groups();
  const RunPlan plan = plan_of(c, run, groups.data().size());
  run.step(0, kPack);
  const auto counted = [](const comm::Communicator& group) { return static_cast<double>(group.counters().total_bytes()); };
  const double tensor_before = counted(groups.tensor()), context_before = counted(groups.context());
  run.step(1, kPack);
  const std::vector<MicroShape> shapes = shapes_of(1, c.item_sequences, groups.data());
  const int here = static_cast<int>(shapes.size()), most = comm::all_reduce_value(world(), here, comm::ReduceOp::max);
  Exchanges planned = exchanges_of_update(plan);
  for (const MicroShape& shape : shapes) {
    const double summed = 2.0 * static_cast<double>(row.summed * shape.labels) * 8;
    planned.tensor.bytes += summed * (c.tensor_ranks - 1) / c.tensor_ranks;
    planned.context.bytes += summed * (c.context_ranks - 1) / c.context_ranks;
  }
  for (const parallel::Action& action : run.list(here, most))
    if (action.micro >= 0) planned += exchanges_of(plan, action, shapes[static_cast<std::size_t>(action.micro)]);
  const auto of_all = [](double bytes) { return comm::all_reduce_value(world(), bytes, comm::ReduceOp::sum); };
  const double tensor = of_all(counted(groups.tensor()) - tensor_before);
  EXPECT_NEAR(of_all(planned.tensor.bytes), tensor, 0.5);
  EXPECT_EQ(tensor > 0, c.tensor_ranks > 1);
  const double context = of_all(counted(groups.context()) - context_before);
  EXPECT_NEAR(of_all(planned.context.bytes), context, 0.5);
  EXPECT_EQ(context > 0, c.context_ranks > 1);
}

/// Run it on powers of two: for other numbers of ranks the counters round each exchange down to bytes.
TEST(Exchanges, HaveTheBytesOfAStep) {
  const int all = world().size();
  const std::vector<Row> rows = {
      {"full, tied", {.tensor_ranks = all}},
      {"full, untied, recomputed", {.tied = false, .recompute = true, .tensor_ranks = all}},
      {"fp32", {.strategy = "zero3", .tensor_ranks = all, .precision = optim::Precision::fp32()}},
      {"LoRA", {.model_type = "qwen3", .lora = true, .dropout = 0.3, .tensor_ranks = all}},
      {"DoRA, recomputed", {.lora = true, .recompute = true, .tensor_ranks = all, .dora = true}},
      {"LoRA, trained embeddings", {.tied = false, .lora = true, .parts = true, .tensor_ranks = all}},
      {"one layer", {.tied = false, .parts = true, .tensor_ranks = all}},
      {"norms of all heads", {.model_type = "olmo2", .tied = false, .recompute = true, .tensor_ranks = all}},
      {"experts", {.model_type = "qwen2_moe", .tied = false, .tensor_ranks = all}},
      {"pairs", {.lora = true, .tensor_ranks = all, .item_sequences = 2, .objective = simpo}, 1},
      {"context", {.tied = false, .recompute = true, .context_ranks = all}},
      {"context, experts", {.model_type = "qwen2_moe", .tied = false, .context_ranks = all}},
      {"context, pairs", {.lora = true, .context_ranks = all, .item_sequences = 2, .objective = simpo}, 1},
  };
  for (std::size_t i = 0; i < rows.size(); i += all > 2 ? 4 : 1) {
    Row row = rows[i];
    row.training.heads = 4;  // for up to four ranks
    expect_bytes_of_a_step(row);
  }
}

TEST(Exchanges, OfDeltaNetsHaveTheBytesOfAStep) {
  if (world().size() != 2) GTEST_SKIP() << "two key heads are for two ranks";
  expect_bytes_of_a_step({"delta nets", {.model_type = "qwen3_5_text", .tensor_ranks = 2}});
  expect_bytes_of_a_step({"delta nets, context", {.model_type = "qwen3_5_text", .context_ranks = 2}});
}

TEST(Exchanges, OfDataRanksAreTheirOwn) {
  if (world().size() != 4) GTEST_SKIP() << "two data ranks of two";
  for (const char* strategy : {"ddp", "zero2", "zero3"})
    expect_bytes_of_a_step({strategy, {.strategy = strategy, .tensor_ranks = 2}});
}

}  // namespace
}  // namespace qft::plan
