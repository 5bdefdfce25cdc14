#include "qft/plan/verdict.h"

#include "qft/core/error.h"
#include "qft/dialects/dialects.h"
#include "qft/engine/run_plan.h"

#include <cmath>
#include <sstream>

#include "io/temp_dir.h"
#include "plan/degrees.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::plan {
namespace {

using test::TempDir;
using test::write_bytes;

constexpr const char* kSmall =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":512,"intermediate_size":1024,"num_hidden_layers":6,)"
    R"("num_attention_heads":8,"num_key_value_heads":8,"vocab_size":2048,"max_position_embeddings":16384,"tie_word_embeddings":false,)"
    R"("rms_norm_eps":1e-5,"hidden_act":"silu"})";

Machine gpus(double gb) {
  Machine m;
  m.name = "GPUs";
  m.ranks_per_node = 4;
  m.memory_gb = gb;
  m.matmul_tflops_bf16 = 10;
  m.narrow_efficiency = m.attention_efficiency = 0.1;
  m.memory_gb_s = 1000;
  m.host_device_gb_s = 5;
  m.node_gb_s = 20;
  m.network_gb_s = 2;
  m.node_latency_us = m.network_latency_us = 10;
  return m;
}

/// Judges runs of one model with different settings.
class Verdicts : public ::testing::Test {
 protected:
  Verdicts() { write_bytes(dir_ / "config.json", kSmall); }

  config::RunConfig config(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"model_name_or_path=" + dir_.path().string(), "bf16=true", "cutoff_len=512", "stage=sft",
                                       "do_train=true", "dataset=x", "output_dir=" + (dir_ / "out").string()});
    return config::load_run_config({}, settings, config::Purpose::plan, dialects::all());
  }
  Plan plan(const std::vector<std::string>& settings, int ranks, const Question& question = {}) const {
    return plan_of(config(settings), ranks, question);
  }
  Plan plan_of(const config::RunConfig& c, int ranks, const Question& question = {}) const {
    return make_plan(c, engine::plan_of(c, engine::ModelSource::read(c, engine::Use::training)), ranks, machine,
                     full_rows(c, c.data_ranks(ranks)), {}, question);
  }
  Verdict verdict(const std::vector<std::string>& settings, int ranks) const {
    return judge(plan(settings, ranks), config(settings), [&](const Variant& variant, const Question& question) {
      auto all = settings;
      all.insert(all.end(), variant.settings.begin(), variant.settings.end());
      config::RunConfig c = config(all);
      if (variant.micro_batch > 0) c.training.per_device_train_batch_size = variant.micro_batch;
      if (variant.tensor > 0) c.set_degrees(variant.tensor, variant.context);
      return plan_of(c, variant.ranks, question);
    });
  }

  TempDir dir_;
  std::optional<Machine> machine = gpus(80);
};

TEST_F(Verdicts, NameTheWayAndTheLargestMicroBatchThatFit) {
  const std::vector<std::string> settings = {"finetuning_type=full", "max_steps=100", "per_device_train_batch_size=2"};
  for (const double gb : {1.0, 1.5, 3.0}) {
    machine = gpus(gb);
    const Verdict v = verdict(settings, 4);
    SCOPED_TRACE(gb);
    ASSERT_TRUE(v.known && v.fits);
    EXPECT_GE(v.largest_micro_batch, 2);
    const auto fits = [&](std::int64_t rows) {
      auto more = settings;
      more.push_back("per_device_train_batch_size=" + std::to_string(rows));
      const Plan p = plan(more, 4);
      return std::ranges::any_of(p.rows, [&](const Row& row) { return row.strategy().name == v.strategy_text && row.run.fits; });
    };
    EXPECT_TRUE(fits(v.largest_micro_batch));
    EXPECT_EQ(v.limit, MicroBatchLimit::memory);
    EXPECT_FALSE(fits(v.largest_micro_batch + 1));
    EXPECT_DOUBLE_EQ(v.run_seconds.value(), 100 * v.step_seconds.value());
    const std::string text = to_text(plan(settings, 4), v);
    EXPECT_NE(text.find("fits: " + v.strategy_text + " on 4 ranks takes "), std::string::npos) << text;
    EXPECT_NE(text.find(fmt::format("per_device_train_batch_size {} ", v.largest_micro_batch)), std::string::npos) << text;
    EXPECT_NE(text.find("100 steps take about "), std::string::npos) << text;
  }
  EXPECT_EQ(verdict(settings, 1).strategy_text, "ddp");
}

TEST_F(Verdicts, SayWhatLimitsTheMicroBatch) {
  const auto end_of = [&](const std::vector<std::string>& settings, const Verdict& v) {
    const std::string text = to_text(plan(settings, 2), v);
    const std::size_t begin = text.find("largest micro-batch: ");
    return text.substr(begin, text.find("time: ", begin) - begin);
  };
  std::vector<std::string> settings = {"finetuning_type=full", "max_steps=10", "global_batch_size=4",
                                       "per_device_train_batch_size=1"};
  Verdict v = verdict(settings, 2);
  EXPECT_EQ(v.largest_micro_batch, 2);
  EXPECT_NE(end_of(settings, v).find("global_batch_size has no more for a rank"), std::string::npos) << end_of(settings, v);

  machine = gpus(1.5);  // the file's micro-batch is not a limit; its global batch is
  for (const bool global : {false, true}) {
    write_bytes(dir_ / "ds.json", global ? R"({"train_micro_batch_size_per_gpu": 2, "train_batch_size": 4})"
                                         : R"({"train_micro_batch_size_per_gpu": 2})");
    settings = {"finetuning_type=full", "max_steps=10", "per_device_train_batch_size=2", "gradient_accumulation_steps=1",
                "deepspeed=" + (dir_ / "ds.json").string()};
    v = verdict(settings, 2);
    EXPECT_EQ(v.limit, global ? MicroBatchLimit::refused : MicroBatchLimit::memory);
    if (global) {
      EXPECT_EQ(v.largest_micro_batch, 2);
      EXPECT_NE(end_of(settings, v).find("train_batch_size is 4"), std::string::npos) << end_of(settings, v);
    } else {
      EXPECT_GT(v.largest_micro_batch, 2);
    }
  }
}

TEST_F(Verdicts, NameWhatWouldFit) {
  machine = gpus(0.45);
  const Verdict v = verdict({"finetuning_type=full", "strategy=ddp", "gradient_checkpointing=false"}, 4);
  EXPECT_FALSE(v.fits);
  EXPECT_EQ(v.strategy_text, "ddp");
  ASSERT_FALSE(v.remedies.empty());
  for (const Remedy& r : v.remedies) EXPECT_LE(r.needed, 0.9 * 0.45e9 + 1) << r.change;
  const auto changes = [](const Verdict& of) {
    std::string all;
    for (const Remedy& r : of.remedies) all += r.change + ";";
    return all;
  };
  EXPECT_NE(changes(v).find("finetuning_type=lora"), std::string::npos) << changes(v);
  machine = gpus(0.2);
  const Verdict automatic = verdict({"finetuning_type=full"}, 1);
  EXPECT_TRUE(!automatic.fits || automatic.strategy_text.find("host memory") != std::string::npos) << automatic.strategy_text;
  EXPECT_FALSE(automatic.remedies.empty());
  machine = gpus(0.01);
  const Verdict never = verdict({"finetuning_type=full"}, 1);
  EXPECT_FALSE(never.fits);
  EXPECT_NE(to_text(plan({"finetuning_type=full"}, 1), never).find("nothing that was tried fits"), std::string::npos);
  machine.reset();
  const Verdict unknown = verdict({"finetuning_type=full"}, 1);
  EXPECT_FALSE(unknown.known);
  EXPECT_NE(to_text(plan({}, 1), unknown).find("--machine NAME"), std::string::npos);
}

/// The degrees that eight heads and the ranks allow, the fastest that fit first. Slow links between the ranks make them slower.
TEST_F(Verdicts, CompareDegrees) {
  const std::vector<std::string> settings = {"finetuning_type=full", "gradient_accumulation_steps=4"};
  const auto of_degree = [](const Verdict& v, std::int64_t tensor, std::int64_t context = 1) {
    const auto found =
        std::ranges::find_if(v.degrees, [&](const DegreesRow& row) { return row.tensor == tensor && row.context == context; });
    EXPECT_NE(found, v.degrees.end()) << tensor << " x " << context;
    return *found;
  };
  Verdict v = verdict(settings, 16);
  std::vector<std::int64_t> products;
  for (const DegreesRow& row : v.degrees) products.push_back(row.tensor * row.context);
  const std::vector<std::int64_t> all = {1, 2, 2, 4, 4, 4, 8, 8, 8, 8};
  EXPECT_TRUE(std::ranges::is_permutation(products, all)) << "16 ranks cannot share 8 heads";
  ASSERT_FALSE(v.refused_degrees.empty());
  for (const RefusedDegrees& r : v.refused_degrees) EXPECT_EQ(r.tensor * r.context, 16) << r.reason;
  EXPECT_NE(v.refused_degrees.front().reason.find("8"), std::string::npos) << v.refused_degrees.front().reason;
  EXPECT_FALSE(v.better) << settings_of(*v.better);
  for (std::size_t i = 1; i < v.degrees.size(); ++i)
    EXPECT_GE(v.degrees[i - 1].tokens_per_second(), v.degrees[i].tokens_per_second());
  EXPECT_EQ(of_degree(v, 1).time.tensor_bytes, 0);
  EXPECT_EQ(of_degree(v, 1, 2).time.tensor_bytes, 0);
  EXPECT_GT(of_degree(v, 1, 2).time.context_bytes, 0);
  EXPECT_GT(of_degree(v, 8).time.tensor_wait, 5 * of_degree(v, 4).time.tensor_wait) << "a node has four ranks";
  EXPECT_NEAR(of_degree(v, 2).time.tokens, of_degree(v, 1).time.tokens / 2, 1e-9) << "half as many data ranks";

  // A long sequence that one rank cannot compute, however its weights are sharded.
  const std::vector<std::string> longer = {"finetuning_type=full", "cutoff_len=16384", "strategy=zero3"};
  v = verdict(longer, 8);
  machine = gpus(static_cast<double>(of_degree(v, 1).needed + of_degree(v, 2).needed) / 2 / 0.9e9);
  v = verdict(longer, 8);
  EXPECT_FALSE(v.fits);
  ASSERT_TRUE(v.better);
  EXPECT_GT(v.better->tensor * v.better->context, 1);
  EXPECT_LT(v.better->needed, v.row.needed);
  EXPECT_EQ(to_text(plan(longer, 8), v).find("use " + settings_of(*v.better)), std::string::npos) << "a remedy names it";
  EXPECT_EQ(v.remedies.front().change, settings_of(*v.better));
}

/// The table is there whether or not the run file sets degrees or a machine is known, with the run's degrees marked.
TEST_F(Verdicts, ShowDegreesBesideTheRuns) {
  const auto text_of = [&](const std::vector<std::string>& settings) { return to_text(plan(settings, 4), verdict(settings, 4)); };
  const std::vector<std::string> set = {"finetuning_type=full", "tensor_parallel=2", "context_parallel=2"};
  for (const bool known : {true, false}) {
    if (!known) machine.reset();
    const std::string text = text_of(set);
    for (const char* pair : {"\n1 x 1 ", "\n2 x 1 ", "\n1 x 4 ", "\n2 x 2 *"})
      EXPECT_NE(text.find(pair), std::string::npos) << pair << text;
    EXPECT_EQ(text.find("tokens/s  ") != std::string::npos, known) << text;
    EXPECT_NE(text.find("tensor MB"), std::string::npos) << text;
    EXPECT_EQ(text.find("with tensor_parallel 2 and context_parallel 2 on 4 ranks") != std::string::npos, known) << text;
    EXPECT_NE(text_of({"finetuning_type=full"}).find("\n1 x 1 *"), std::string::npos);
  }
  EXPECT_EQ(to_text(plan({}, 1), verdict({}, 1)).find("tensor x context"), std::string::npos) << "one rank has no choice";
}

/// Eight heads are too few for sixteen ranks, and the reason is told.
TEST_F(Verdicts, NameRefusedDegrees) {
  const std::vector<std::string> settings = {"finetuning_type=full", "tensor_parallel=4"};
  const Verdict v = verdict(settings, 16);
  ASSERT_EQ(v.refused_degrees.size(), 5U);
  const std::string text = to_text(plan(settings, 16), v);
  EXPECT_NE(text.find("refused: 1 x 16, 2 x 8, 4 x 4, 8 x 2, 16 x 1 (the first: "), std::string::npos) << text;
  EXPECT_NE(text.find("heads"), std::string::npos) << text;
}

/// The legend of a table names its columns.
TEST_F(Verdicts, ExplainTheColumnsThatAreShown) {
  const auto legend = [&](const char* setting) { return to_text(plan({"finetuning_type=full", setting}, 2)); };
  const std::string tensor = legend("tensor_parallel=2"), context = legend("context_parallel=2");
  EXPECT_NE(tensor.find("tensor: exchanges"), std::string::npos) << tensor;
  EXPECT_EQ(tensor.find("context: exchanges"), std::string::npos) << tensor;
  EXPECT_EQ(context.find("tensor: exchanges"), std::string::npos) << context;
  EXPECT_NE(context.find("context: exchanges"), std::string::npos) << context;
}

/// A row fits if and only if its longest sequence is at least the run's length.
TEST_F(Verdicts, OfRowsAgreeWithTheirLongestSequences) {
  for (const double gb : {0.3, 0.5, 0.7, 1.0, 2.0, 4.0})
    for (const int rows : {1, 3, 8}) {
      machine = gpus(gb);
      const Plan p = plan({"finetuning_type=full", "per_device_train_batch_size=" + std::to_string(rows)}, 4);
      EXPECT_EQ(p.sequences, rows);
      for (const Row& row : p.rows)
        EXPECT_EQ(row.run.fits, row.longest >= 512)
            << row.strategy().name << " " << row.group() << " " << gb << " GB: " << row.longest;
    }
}

/// Step, compute, the busiest link and the serial sum keep this order, as numbers and as printed.
TEST_F(Verdicts, OfTimeKeepOverlapBetweenItsBounds) {
  int rows = 0;
  for (const double network : {0.05, 2.0, 50.0})
    for (const double share : {0.0, 0.05})
      for (const char* offload : {"none", "optimizer", "param"})
        for (const char* type : {"full", "lora"}) {
          machine = gpus(80);
          machine->network_gb_s = network;
          machine->network_latency_us = 500;
          machine->compute_s_per_gb = share;
          std::vector<std::string> settings = {std::string("finetuning_type=") + type, "gradient_accumulation_steps=4",
                                               "hsdp_group_size=4"};
          if (*offload != 'n') settings.emplace_back("offload_optimizer=cpu");
          if (*offload == 'p') settings.emplace_back("offload_param=cpu");
          for (const int ranks : {1, 4, 8}) {
            const Plan p = plan(settings, ranks);
            for (const Row& row : p.rows) {
              const StepTime& t = row.time;
              const std::string what =
                  fmt::format("{} g={} ranks={} {} {} {}", row.strategy().name, row.group(), ranks, offload, type, network);
              const double rounding = 1e-9 * t.serial();
              EXPECT_GE(t.step, t.compute - rounding) << what;
              EXPECT_GE(t.step, t.wire - rounding) << what;
              EXPECT_LE(t.step, t.serial() + rounding) << what;
              EXPECT_LE(t.wire, t.transfers + rounding) << what;
              EXPECT_NEAR(t.step, t.compute + t.gather_wait + t.reduce_wait, share > 0 ? t.step : rounding) << what;
              ++rows;
            }
          }
        }
  EXPECT_GT(rows, 300);
}

TEST_F(Verdicts, OfTimeArePrintedInOrder) {
  machine = gpus(80);
  const std::string text = to_text(plan({"finetuning_type=full", "gradient_accumulation_steps=4"}, 8));
  std::istringstream lines(text);
  bool times = false;
  int checked = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 120U) << line;
    if (line.find("step s") != line.npos) {
      times = true;
      continue;
    }
    std::istringstream cells(line);
    std::string name, group, weights, gradients;
    double step = 0, compute = 0, link = 0, weight_wait = 0, gradient_wait = 0, serial = 0;
    if (times &&
        cells >> name >> group >> weights >> gradients >> step >> compute >> link >> weight_wait >> gradient_wait >> serial) {
      EXPECT_GE(step, compute) << line;
      EXPECT_GE(step, link) << line;
      EXPECT_GE(serial, step) << line;
      ++checked;
    }
  }
  EXPECT_GE(checked, 8) << text;
}

}  // namespace
}  // namespace qft::plan
