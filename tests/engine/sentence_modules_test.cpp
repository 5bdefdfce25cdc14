// Stages embedding and reranker compare themselves with the model's files of sentence-transformers.
#include "engine/sentence_modules.h"

#include "qft/engine/run_plan.h"

#include <string>
#include <utility>

#include "io/temp_dir.h"
#include "tokenizer/fixture.h"
#include <gtest/gtest.h>

namespace qft::engine {
namespace {

using nlohmann::json;
using test::contains;
using test::error_of;
using test::TempDir;
using test::write_bytes;

json tiny_model() {
  return {{"model_type", "qwen2"},    {"hidden_size", 64},  {"intermediate_size", 128},    {"num_hidden_layers", 1},
          {"num_attention_heads", 4}, {"vocab_size", 4096}, {"tie_word_embeddings", true}, {"max_position_embeddings", 256}};
}

json listed(const std::string& kind, const std::string& path) {
  return {{"path", path}, {"type", "sentence_transformers.models." + kind}};
}

/// A folder of a model with modules.json.
struct Folder {
  explicit Folder(const json& more, const json& config = tiny_model()) {
    json modules = json::array({listed("Transformer", "")});
    for (const json& module : more) modules.push_back(module);
    write_bytes(dir / "config.json", config.dump());
    write_bytes(dir / "modules.json", modules.dump());
  }

  config::RunConfig run(const char* stage, const char* type = "classification") const {
    config::RunConfig config;
    config.model.model_name_or_path = dir.path().string();
    config.model.tokenizer_name_or_path = tokenizer::tiny_dir().string();
    config.finetuning.stage = stage;
    config.finetuning.reranker_type = type;
    config.finetuning.finetuning_type = "full";
    config.resolve();
    return config;
  }

  TempDir dir;
};

model::Head head_of_run(const config::RunConfig& config, Use use) {
  return plan_of(config, ModelSource::read(config, use)).spec->head;
}

std::string refusal(const config::RunConfig& config, Use use) {
  return error_of([&] { head_of_run(config, use); });
}

TEST(SentenceModules, OnlyTheLastTokenIsPooled) {
  const Folder folder(json::array({listed("Pooling", "1_Pooling"), listed("Normalize", "2_Normalize")}));
  const config::RunConfig config = folder.run("embedding");
  const std::string file = folder.dir / "1_Pooling/config.json";
  for (const json& pooling : {json{{"pooling_mode_lasttoken", true}, {"pooling_mode_mean_tokens", false}},
                              json{{"pooling_mode", "lasttoken"}}, json{{"pooling_mode", json::array({"lasttoken"})}}}) {
    write_bytes(file, pooling.dump());
    EXPECT_EQ(head_of_run(config, Use::inference).kind, model::Head::Kind::vector) << pooling;
  }
  const std::pair<json, const char*> others[] = {
      {{{"pooling_mode", "mean"}}, "pooling_mode is \"mean\""},
      {{{"pooling_mode", json::array({"cls", "lasttoken"})}}, "pooling_mode is [\"cls\",\"lasttoken\"]"},
      {{{"pooling_mode_lasttoken", true}, {"pooling_mode_cls_token", true}}, "pooling_mode_cls_token is true"},
      {{{"pooling_mode_mean_tokens", true}}, "pooling_mode_mean_tokens is true"},
      {json::object(), "pooling_mode_lasttoken is null"}};
  for (const auto& [pooling, words] : others) {
    write_bytes(file, pooling.dump());
    for (const Use use : {Use::training, Use::inference}) {
      const std::string said = refusal(config, use);
      EXPECT_TRUE(contains(said, file) && contains(said, words) && contains(said, "set pooling_mode to \"lasttoken\"")) << said;
    }
  }
  write_bytes(file, R"({"pooling_mode": "mean"})");
  EXPECT_TRUE(head_of_run(folder.run("reranker"), Use::training).classifies()) << "a reranker does not pool";
}

TEST(SentenceModules, FurtherOnesAreRefused) {
  const Folder folder(json::array({listed("Pooling", "1_Pooling"), listed("Dense", "2_Dense")}));
  write_bytes(folder.dir / "1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  for (const char* stage : {"embedding", "reranker"})
    for (const Use use : {Use::training, Use::inference}) {
      const std::string said = refusal(folder.run(stage), use);
      EXPECT_TRUE(contains(said, folder.dir / "modules.json") && contains(said, "the module Dense")) << said;
    }
  EXPECT_EQ(head_of_run(folder.run("sft"), Use::training), model::Head::language_model);
}

class LogitScore : public testing::Test {
 protected:
  void SetUp() override { write(5, 6); }
  void write(const json& positive, const json& negative) const {
    write_bytes(folder.dir / "1_LogitScore/config.json", json{{"true_token_id", positive}, {"false_token_id", negative}}.dump());
  }
  static std::string word(std::int32_t id) { return tokenizer::Tokenizer::load(tokenizer::tiny_dir())->id_to_token(id); }

  const Folder folder{json::array({listed("LogitScore", "1_LogitScore")})};
  config::RunConfig config = folder.run("reranker", "generative");
};

TEST_F(LogitScore, SetsTheAnswersThatTheRunFileDoesNot) {
  for (const Use use : {Use::training, Use::inference}) EXPECT_EQ(head_of_run(config, use), model::Head::token_difference(5, 6));
  EXPECT_EQ(answer_tokens(config, /*trains=*/false), (AnswerTokens{5, 6}));
  config.finetuning.reranker_positive_token = word(5);
  config.finetuning.reranker_negative_token = word(6);
  EXPECT_EQ(head_of_run(config, Use::inference), model::Head::token_difference(5, 6));
}

TEST_F(LogitScore, OnlyTrainingMayChooseOthers) {
  config.finetuning.reranker_positive_token = word(7);
  const std::string said = refusal(config, Use::inference);
  EXPECT_TRUE(contains(said, folder.dir / "1_LogitScore/config.json") && contains(said, "(7)") && contains(said, "(5)") &&
              contains(said, "remove the keys"))
      << said;
  testing::internal::CaptureStderr();
  EXPECT_EQ(head_of_run(config, Use::training), model::Head::token_difference(7, 6));
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "training uses the answers"));
}

TEST_F(LogitScore, HasNoHeadOfAClassifier) {
  EXPECT_TRUE(contains(refusal(folder.run("reranker"), Use::inference),
                       "is of a generative reranker, and reranker_type is classification: set stage: reranker and "
                       "reranker_type: generative"));
  EXPECT_TRUE(head_of_run(folder.run("reranker"), Use::training).classifies());
}

TEST_F(LogitScore, NeedsTwoTokens) {
  for (const json& negative : {json(), json(5), json(-1), json(1 << 24), json("no")}) {
    write(5, negative);
    EXPECT_TRUE(contains(refusal(config, Use::inference), "false_token_id")) << negative;
  }
}

/// A model with one label and a problem_type: a reranker's scores have none, so it does not matter.
TEST(RerankerHead, ProblemTypeOfTheBaseDoesNotMatter) {
  json config = tiny_model();
  config.update({{"architectures", {"Qwen2ForSequenceClassification"}},
                 {"id2label", {{"0", "LABEL_0"}}},
                 {"problem_type", "multi_label_classification"}});
  const Folder folder(json::array(), config);
  for (const Use use : {Use::training, Use::inference})
    EXPECT_EQ(head_of_run(folder.run("reranker"), use), model::Head::classifier(1));
  const std::string keys = "set stage: reranker and reranker_type: classification";
  EXPECT_TRUE(contains(refusal(folder.run("reranker", "generative"), Use::inference), keys));
  EXPECT_TRUE(contains(refusal(folder.run("sft"), Use::inference), keys)) << "modules.json tells that it is a reranker";
  config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  const Folder classifier(json::array(), config);
  const std::string said = refusal(classifier.run("reranker"), Use::inference);
  EXPECT_TRUE(contains(said, "stage reranker with reranker_type classification asks for a classifier of 1 label") &&
              contains(said, "set stage: seq_cls and num_labels: 3"))
      << said;
}

TEST(RerankerHead, ArchitecturesWithoutAClassifierNameTheStage) {
  json config = tiny_model();
  config.update({{"model_type", "qwen3_5_text"}, {"layer_types", {"full_attention"}}, {"head_dim", 16}});
  const Folder folder(json::array(), config);
  EXPECT_TRUE(contains(refusal(folder.run("reranker"), Use::inference),
                       "stage reranker with reranker_type classification is not implemented for model_type qwen3_5_text"));
}

TEST(SentenceModules, NameTheKeysIfTheStageIsNotGiven) {
  const Folder embeds(json::array({listed("Pooling", "1_Pooling")})), ranks(json::array({listed("LogitScore", "1_LogitScore")}));
  for (const char* stage : {"sft", "rm"}) {  // qft score without a stage takes rm
    EXPECT_TRUE(contains(refusal(embeds.run(stage), Use::inference), "is of an embedding model, and stage is")) << stage;
    EXPECT_TRUE(contains(refusal(embeds.run(stage), Use::inference), "set stage: embedding and use qft score")) << stage;
    EXPECT_TRUE(contains(refusal(ranks.run(stage), Use::inference), "set stage: reranker and reranker_type: generative"))
        << stage;
  }
  config::RunConfig config = embeds.run("sft");
  config.given["stage"] = "the test";
  EXPECT_EQ(head_of_run(config, Use::inference), model::Head::language_model);
  EXPECT_EQ(head_of_run(ranks.run("sft"), Use::training), model::Head::language_model);
  EXPECT_EQ(sentence_keys(embeds.dir.path()), "stage: embedding");
  EXPECT_EQ(sentence_keys({}), "");
}

TEST(MatryoshkaWidths, AreComparedWithTheModelBeforeTraining) {
  const Folder folder(json::array());
  config::RunConfig config = folder.run("embedding");
  config.finetuning.mrl_dims = {{"64", 1.0}};
  EXPECT_EQ(head_of_run(config, Use::training).kind, model::Head::Kind::vector);
  config.finetuning.mrl_dims = {{"65", 1.0}};
  EXPECT_TRUE(contains(refusal(config, Use::training), "mrl_dims has the width 65, but the model's vectors have 64 numbers"));
}

}  // namespace
}  // namespace qft::engine
