// Tests the part of a plan that does not depend on the machine.
#include "qft/engine/run_plan.h"

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

constexpr const char* kTiny =
    R"({"model_type":"qwen2","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("vocab_size":512,"max_position_embeddings":256})";

config::RunConfig run_of(const test::TempDir& dir, const char* stage) {
  config::RunConfig config;
  config.model.model_name_or_path = dir.path().string();
  config.finetuning.stage = stage;
  config.finetuning.finetuning_type = "full";
  config.resolve();
  return config;
}

TEST(PlanOf, AModelThatAnswersNeedsNoReference) {
  const test::TempDir dir;
  test::write_bytes(dir / "config.json", kTiny);
  for (const char* stage : {"sft", "dpo", "kto"}) {
    const config::RunConfig config = run_of(dir, stage);
    const plan::RunPlan run = plan_of(config, ModelSource::read(config, Use::inference));
    EXPECT_FALSE(run.training);
    EXPECT_EQ(run.reference_model, nullptr) << stage;
    EXPECT_FALSE(run.schedule.reference) << stage;
  }
}

TEST(PlanOf, ATrainedModelHasASeparateReferenceIfAllItsWeightsTrain) {
  const test::TempDir dir;
  test::write_bytes(dir / "config.json", kTiny);
  for (const bool pairs : {false, true}) {
    const config::RunConfig config = run_of(dir, pairs ? "dpo" : "sft");
    const ModelSource source = ModelSource::read(config, Use::training);
    const plan::RunPlan run = plan_of(config, source);
    EXPECT_TRUE(run.training);
    EXPECT_EQ(run.reference_model != nullptr, pairs);
    EXPECT_EQ(source.reference() != nullptr, pairs);
    EXPECT_EQ(run.spec->num_params(true), run.spec->num_params(false));
  }
}

/// The second rank's parts do not begin with a nested block of scales, so their scales are fp32.
TEST(PlanOf, CountsTheMostPackedBytesOfATensorRank) {
  const test::TempDir dir;
  test::write_bytes(dir / "config.json",
                    R"({"model_type":"qwen2","hidden_size":128,"intermediate_size":256,"num_hidden_layers":2,)"
                    R"("num_attention_heads":2,"vocab_size":512,"max_position_embeddings":256})");
  config::RunConfig config = run_of(dir, "sft");
  config.finetuning.finetuning_type = "lora";
  config.finetuning.lora_target = {"all"};
  config.model.quantization_bit = 4;
  config.parallel.tensor_parallel = 2;
  config.resolve();
  const ModelSource source = ModelSource::read(config, Use::training);
  const auto bytes = [](const plan::RunPlan& run) { return run.spec->units[1].packed_bytes; };
  const std::int64_t first = bytes(plan_of(config, source, model::Share{0, 2})),
                     second = bytes(plan_of(config, source, model::Share{1, 2}));
  EXPECT_LT(first, second);
  EXPECT_EQ(bytes(plan_of(config, source)), second);
}

}  // namespace
}  // namespace qft::engine
