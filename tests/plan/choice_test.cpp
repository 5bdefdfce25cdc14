#include "qft/core/error.h"
#include "qft/engine/run_plan.h"
#include "qft/plan/plan.h"

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::plan {
namespace {

using test::TempDir;
using test::write_bytes;

constexpr const char* kTiny =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":6,)"
    R"("num_attention_heads":4,"num_key_value_heads":4,"vocab_size":512,"tie_word_embeddings":false,"rms_norm_eps":1e-5,"hidden_act":"silu"})";

Plan planned(const config::RunConfig& config, int ranks, const std::optional<Machine>& machine = {}, const Process& here = {}) {
  const auto source = engine::ModelSource::read(config, engine::Use::training);
  return make_plan(config, engine::plan_of(config, source), ranks, machine, full_rows(config, ranks), here);
}

/// Returns the row of ddp.
Row ddp(const TempDir& dir, double max_memory, std::optional<bool> gradient_checkpointing = {}) {
  config::RunConfig config;
  config.model.model_name_or_path = dir.path().string();
  config.finetuning.finetuning_type = "full";
  config.data.cutoff_len = 2000;
  config.training.bf16 = true;
  config.parallel.max_memory = max_memory;
  config.training.gradient_checkpointing = gradient_checkpointing;
  config.resolve();
  const Plan plan = planned(config, 2);
  for (const Row& row : plan.rows)
    if (row.strategy().name == "ddp") return row;
  ADD_FAILURE() << "no row of ddp";
  return {};
}

TEST(MaxMemory, DecidesWhatIsComputedAgain) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  const Row usual = ddp(dir, 0);
  EXPECT_TRUE(usual.run.schedule.recompute);
  const Row kept = ddp(dir, 100);
  EXPECT_FALSE(kept.run.schedule.recompute);
  EXPECT_GT(kept.needed, usual.needed);

  const auto allowing = [](std::int64_t bytes) { return static_cast<double>(bytes) * 1.001 / 0.9e9; };
  EXPECT_FALSE(ddp(dir, allowing(kept.needed)).run.schedule.recompute);
  const Row less = ddp(dir, allowing(kept.needed - 1000000));
  EXPECT_TRUE(less.run.schedule.recompute && less.run.fits && less.run.schedule.head_rows == 0);
  const Row least = ddp(dir, allowing(usual.needed - 300000));
  EXPECT_TRUE(least.run.schedule.recompute && least.run.fits && least.run.schedule.head_rows > 0) << least.needed;
  EXPECT_FALSE(ddp(dir, 1e-3).run.fits);
}

TEST(MaxMemory, LeavesWhatAKeySays) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  EXPECT_TRUE(ddp(dir, 100, true).run.schedule.recompute);
  EXPECT_FALSE(ddp(dir, 1e-3, false).run.schedule.recompute);
}

TEST(CudaGraphs, ArePlannedWithWhatTheyPadAndHold) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  config::RunConfig config;
  config.model.model_name_or_path = dir.path().string();
  config.finetuning.finetuning_type = "full";
  config.data.cutoff_len = 2000;
  config.training.bf16 = true;
  config.training.per_device_train_batch_size = 1;
  config.resolve();
  const Plan without = planned(config, 2);
  config.training.cuda_graphs = true;
  const Plan with = planned(config, 2);
  ASSERT_EQ(with.rows.size(), 2U) << "ddp and zero1";
  EXPECT_EQ(with.rows[1].strategy().name, "zero1");
  EXPECT_GT(without.rows.size(), 2U);
  EXPECT_EQ(with.workload.largest.tokens, 2048);
  EXPECT_GT(with.rows[0].memory().activations, without.rows[0].memory().activations);
  EXPECT_GT(with.rows[0].memory().buffers, without.rows[0].memory().buffers * 2048 / 2000);
  EXPECT_EQ(with.rows[0].memory().state(), without.rows[0].memory().state());
}

TEST(UnifiedMemory, IsOffloadedToNowhereAndHoldsTheCopiesForCheckpoints) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  config::RunConfig config;
  config.model.model_name_or_path = dir.path().string();
  config.finetuning.finetuning_type = "full";
  config.data.cutoff_len = 2000;
  config.training.bf16 = true;
  config.training.async_save = true;
  config.training.save_strategy = "steps";
  config.parallel.offload_optimizer = "cpu";
  config.resolve();
  Machine machine;
  machine.memory_gb = 80;
  machine.memory_gb_s = machine.matmul_tflops_bf16 = machine.attention_efficiency = machine.host_device_gb_s = 1;
  machine.node_gb_s = machine.network_gb_s = 1;
  const auto row_of = [&](bool unified, double gb) {
    machine.unified = unified;
    machine.memory_gb = gb;
    const Plan plan = planned(config, 1, machine);
    EXPECT_EQ(plan.notes.empty(), !unified);
    EXPECT_EQ(to_text(plan).find("offload_optimizer is cpu, which has no effect") == std::string::npos, !unified);
    return plan.rows.at(0);
  };
  const Row apart = row_of(false, 80), unified = row_of(true, 80);
  EXPECT_EQ(apart.memory().optimizer, 0);
  EXPECT_EQ(unified.memory().host, 0);
  EXPECT_GT(unified.memory().optimizer, 0);
  EXPECT_GT(apart.memory().host, unified.memory().optimizer) << "includes the gradient sums";
  EXPECT_EQ(apart.staged, 0);
  EXPECT_GT(unified.staged, 0);
  EXPECT_EQ(unified.needed, unified.memory().total() + unified.staged);
  // Memory for the model with a tenth free does not hold the checkpoint copies too.
  const auto only_model = static_cast<double>(unified.memory().total()) * 1.01 / 0.9e9;
  EXPECT_FALSE(row_of(true, only_model).run.fits);
  EXPECT_TRUE(row_of(true, only_model + 1.01e-9 * static_cast<double>(unified.staged)).run.fits);

  // Offloaded tensors must fit into the node's memory, if it is known.
  EXPECT_TRUE(apart.run.fits);
  machine.host_memory_gb = 0.9e-9 * static_cast<double>(apart.memory().host);
  EXPECT_FALSE(row_of(false, 80).run.fits);
  machine.host_memory_gb = 1000;
  EXPECT_TRUE(row_of(false, 80).run.fits);
}

TEST(Precision, Fp16OnACpuIsWarnedOf) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  const auto notes = [&](bool fp16, bool on_cpu) {
    config::RunConfig config;
    config.model.model_name_or_path = dir.path().string();
    (fp16 ? config.training.fp16 : config.training.bf16) = true;
    config.resolve();
    return planned(config, 1, std::nullopt, {.on_cpu = on_cpu}).notes;
  };
  ASSERT_EQ(notes(true, true).size(), 1U);
  EXPECT_NE(notes(true, true)[0].find("set bf16: true"), std::string::npos);
  EXPECT_TRUE(notes(true, false).empty() && notes(false, true).empty());
}

TEST(Hsdp, AskedForWithoutGroupsIsAnError) {
  const TempDir dir;
  write_bytes(dir / "config.json", kTiny);
  const auto plan = [&](std::int64_t group) {
    config::RunConfig config;
    config.model.model_name_or_path = dir.path().string();
    config.data.cutoff_len = 2000;
    config.parallel.strategy = "hsdp";
    config.parallel.hsdp_group_size = group;
    config.resolve();
    return planned(config, 4);
  };
  EXPECT_THROW(plan(0), ConfigError);  // no machine tells the ranks per node
  EXPECT_THROW(plan(3), ConfigError);
  EXPECT_THROW(plan(4), ConfigError);
  EXPECT_NO_THROW(plan(2));
}

}  // namespace
}  // namespace qft::plan
