// Compares the table of objectives with the losses that the run file allows.
#include "qft/engine/objectives.h"

#include "qft/core/error.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "config/runnable.h"
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

// The configuration cannot see the table, so it has its own list of refused losses.
TEST(Objectives, AreTheLossesThatTheConfigurationDoesNotRefuse) {
  config::RunConfig config;
  config.finetuning.stage = "dpo";
  std::vector<std::string_view> losses;
  config.finetuning.visit([&](const config::Field& field, const config::FieldRef&) {
    if (field.name == "pref_loss") losses = field.choices;
  });
  ASSERT_FALSE(losses.empty());
  for (const config::Purpose purpose : {config::Purpose::train, config::Purpose::eval, config::Purpose::plan}) {
    const auto refused = config::not_implemented("pref_loss", purpose);
    for (const std::string_view loss : losses) {
      SCOPED_TRACE(loss);
      config.finetuning.pref_loss = loss;
      if (std::ranges::find(refused, loss) == refused.end())
        EXPECT_EQ(objective_of(config).name, loss);
      else
        EXPECT_THROW(objective_of(config), ConfigError);
    }
  }
}

TEST(Objectives, EveryStageHasOne) {
  for (const config::Stage& stage : config::stages()) {
    SCOPED_TRACE(stage.name);
    config::RunConfig config;
    config.finetuning.stage = stage.name;
    config.finetuning.num_labels = 2;
    const ObjectiveRow& row = objective_of(config);
    EXPECT_EQ(traits_of(config).item_sequences, stage.sequences > 0 ? stage.sequences : stage.limits(config).planned_sequences());
    EXPECT_EQ(row.make(config, {})->kind(), row.kind);
    EXPECT_TRUE(!row.loss_is_nll || stage.label_mean);
  }
}

TEST(Objectives, NameThePassBeforeTheStep) {
  config::RunConfig config;
  config.finetuning.stage = "kto";
  EXPECT_EQ(traits_of(config).pass_before, parallel::PassBefore::untrained_sequences);
  config.finetuning.stage = "dpo";
  EXPECT_EQ(traits_of(config).pass_before, parallel::PassBefore::none);
  config.finetuning.pref_bco_weight = 0.5;
  EXPECT_EQ(traits_of(config).pass_before, parallel::PassBefore::trained_sequences);
}

TEST(Objectives, OfSingleSamplesFollowTheirKeys) {
  config::RunConfig config;
  EXPECT_EQ(objective_of(config).name, "cross_entropy");
  config.finetuning.use_eaft_loss = true;
  EXPECT_EQ(objective_of(config).name, "eaft");
  config.finetuning.use_eaft_loss = false;
  config.finetuning.use_dft_loss = true;
  EXPECT_EQ(objective_of(config).name, "dft");
  EXPECT_EQ(make_objective(config, {}, {8, 2, 20})->denominator(), 8);
  config.finetuning.use_dft_loss = false;
  config.finetuning.use_asft_loss = true;
  EXPECT_EQ(objective_of(config).name, "asft");
  EXPECT_TRUE(traits_of(config).reference && traits_of(config).reference_rows);
  config.finetuning.stage = "dpo";
  EXPECT_EQ(objective_of(config).name, config.finetuning.pref_loss);
}

}  // namespace
}  // namespace qft::engine
