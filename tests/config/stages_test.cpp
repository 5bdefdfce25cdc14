// Checks the table of stages against the keys that it names.
#include "qft/config/stages.h"

#include "qft/config/bound_field.h"
#include "qft/config/run_config.h"
#include "qft/core/error.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace qft::config {
namespace {

TEST(Stages, NameKeysThatExist) {
  RunConfig config;
  const auto fields = bound_fields(config);
  for (const Stage& stage : stages()) {
    for (const StageKey& row : stage.keys) EXPECT_NE(find_field(fields, row.key), nullptr) << stage.name << ": " << row.key;
    for (const std::string_view key : stage.own_keys.keys)
      EXPECT_NE(find_field(fields, key), nullptr) << stage.name << ": " << key;
    for (const RefusedKey& row : stage.refused) EXPECT_NE(find_field(fields, row.key), nullptr) << stage.name << ": " << row.key;
  }
}

TEST(Stages, AreFoundByName) {
  std::set<std::string_view> names;
  for (const Stage& stage : stages()) {
    EXPECT_TRUE(names.insert(stage.name).second) << stage.name;
    EXPECT_EQ(find_stage(stage.name), &stage);
    RunConfig config;
    config.finetuning.stage = stage.name;
    EXPECT_EQ(&config.stage(), &stage);
  }
  EXPECT_EQ(find_stage("ppo"), nullptr);
  EXPECT_THROW(stage_of("ppo"), ConfigError);
}

/// The facts of a row agree with each other.
TEST(Stages, RowsAreConsistent) {
  for (const Stage& stage : stages()) {
    SCOPED_TRACE(stage.name);
    EXPECT_EQ(stage.has_pairs() || stage.trains_first_only, stage.sequences == 2);
    EXPECT_EQ(stage.limits != nullptr, stage.sequences == 0);
    EXPECT_EQ(stage.outputs_scores(), !stage.model.empty()) << "messages name a model without answers";
    EXPECT_FALSE(stage.label_mean && stage.outputs_scores());
    EXPECT_TRUE(!stage.weighs_labels || stage.sample == SampleKind::conversation) << "others have no weights";
    EXPECT_FALSE(stage.outputs_scores() && stage.predicts.empty()) << "scores can be written";
  }
}

TEST(Stages, AreNamedByWhatTheyHave) {
  EXPECT_EQ(stage_names([](const Stage& stage) { return stage.owns("num_labels"); }), "seq_cls");
  EXPECT_EQ(stage_names([](const Stage& stage) { return stage.has_pairs(); }), "dpo or rm");
  EXPECT_EQ(stage_names([](const Stage&) { return false; }), "");
}

TEST(Stages, ReadAKeyOnlyWithTheKeyThatItNeeds) {
  RunConfig config;
  EXPECT_EQ(stage_of("sft").unread_reason("ref_model", config), "use_asft_loss is false");
  EXPECT_TRUE(stage_of("dpo").reads("ref_model", config));
  config.finetuning.use_asft_loss = true;
  EXPECT_TRUE(stage_of("sft").reads("ref_model", config));
  EXPECT_EQ(stage_of("rm").unread_reason("ref_model", config), "stage is rm");
}

TEST(Stages, ReadAKeyThatAChainOfKeysNeeds) {
  RunConfig config;
  const Stage& stage = stage_of("embedding");
  EXPECT_EQ(stage.unread_reason("infonce_fake_neg_margin", config), "infonce_mask_fake_negative is false");
  config.finetuning.infonce_mask_fake_negative = true;
  EXPECT_TRUE(stage.reads("infonce_fake_neg_margin", config));
  config.finetuning.infonce_use_batch = false;
  EXPECT_EQ(stage.unread_reason("infonce_fake_neg_margin", config), "infonce_use_batch is false");
  config.finetuning.embedding_loss = "online_contrastive";
  EXPECT_EQ(stage.unread_reason("infonce_temperature", config), "embedding_loss is online_contrastive");
  EXPECT_TRUE(stage.reads("contrastive_margin", config));
}

TEST(Stages, ShowBothMeansOfSimilaritiesOfAStep) {
  const auto& shown = stage_of("embedding").shown_metrics;
  for (const std::string_view name : {"mean_pos", "mean_neg", "margin"}) EXPECT_NE(std::ranges::find(shown, name), shown.end());
}

TEST(Stages, PlanNoMoreSequencesThanAPlanCanHold) {
  RunConfig config;
  config.finetuning.max_positive_samples = 1000;
  config.finetuning.max_negative_samples = 10000;
  EXPECT_EQ(stage_of("reranker").limits(config).planned_sequences(), 10000);
}

}  // namespace
}  // namespace qft::config
