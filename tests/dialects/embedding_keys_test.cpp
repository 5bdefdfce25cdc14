// ms-swift's arguments and environment variables of embedding models and rerankers.
#include <algorithm>
#include <cstdlib>

#include "dialect_files.h"

namespace qft::dialects {
namespace {

using config::FinetuningArgs;

/// An environment variable that exists as long as the object.
struct Variable {
  Variable(const char* name, const char* value) : name(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name); }
  Variable(const Variable&) = delete;
  const char* name;
};

RunConfig load_arguments(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"--model=m", "--dataset=d"});
  return load({}, overrides, Purpose::train);
}

std::string error_of_arguments(const std::vector<std::string>& overrides) {
  return error_of([&] { load_arguments(overrides); });
}

TEST(EmbeddingKeys, TaskAndLossSelectTheStage) {
  const FinetuningArgs e = load_arguments({"--task_type=embedding", "--loss_type=online_contrastive"}).finetuning;
  EXPECT_EQ(e.stage, "embedding");
  EXPECT_EQ(e.embedding_loss, "online_contrastive");
  const FinetuningArgs c = load_arguments({"--task_type=reranker", "--loss_type=listwise_reranker"}).finetuning;
  EXPECT_EQ(c.stage, "reranker");
  EXPECT_EQ(c.reranker_type, "classification");
  EXPECT_EQ(c.reranker_loss, "listwise");
  const FinetuningArgs g = load_arguments({"--task_type=generative_reranker", "--loss_type=pointwise_reranker"}).finetuning;
  EXPECT_EQ(g.reranker_type, "generative");
  EXPECT_EQ(g.reranker_loss, "pointwise");
}

TEST(EmbeddingKeys, ALossOfAnotherTaskIsRefused) {
  for (const char* loss : {"triplet", "pointwise_reranker", "sigmoid", "cross_entropy"}) {
    const std::string error = error_of_arguments({"--task_type=embedding", std::string("--loss_type=") + loss});
    EXPECT_CONTAINS(error, "is refused in stage embedding: allowed are infonce, cosine_similarity");
    EXPECT_EQ(error.find("simpo"), error.npos) << error;
  }
  EXPECT_CONTAINS(error_of_arguments({"--task_type=generative_reranker", "--loss_type=infonce"}),
                  "is refused in stage reranker: allowed are pointwise_reranker");
}

TEST(EmbeddingKeys, VariablesAreArgumentsOrInTheEnvironment) {
  EXPECT_EQ(load_arguments({"--task_type=embedding", "INFONCE_TEMPERATURE=0.02"}).finetuning.infonce_temperature, 0.02);
  const Variable temperature("INFONCE_TEMPERATURE", "0.05"), queries("INFONCE_INCLUDE_QQ", "true");
  const auto run = load_arguments({"--task_type=embedding", "--loss_type=infonce"});
  EXPECT_EQ(run.finetuning.infonce_temperature, 0.05);
  EXPECT_TRUE(run.finetuning.infonce_include_qq);
  EXPECT_NE(std::ranges::find(run.notes, "infonce_temperature: 0.05 (from the environment variable INFONCE_TEMPERATURE)"),
            run.notes.end());
  // The run file and the command line are stronger, and other stages do not read the variable.
  EXPECT_EQ(load_arguments({"--task_type=embedding", "infonce_temperature=0.3"}).finetuning.infonce_temperature, 0.3);
  EXPECT_EQ(load_arguments({}).finetuning.infonce_temperature, FinetuningArgs().infonce_temperature);
}

TEST(EmbeddingKeys, TheMetricIsThatOfTheLoss) {
  EXPECT_EQ(load_arguments({"--task_type=embedding", "--eval_metric=infonce"}).finetuning.stage, "embedding");
  EXPECT_CONTAINS(error_of_arguments({"--task_type=embedding", "--eval_metric=paired"}),
                  "reports the metrics that ms-swift calls infonce");
  EXPECT_CONTAINS(error_of_arguments({"--eval_metric=reranker"}), "calls nlg");
}

TEST(EmbeddingKeys, PlainTextsNeedTheNameOfTheirTemplate) {
  EXPECT_CONTAINS(error_of_arguments({"--task_type=embedding", "--use_chat_template=false"}),
                  "write template: qwen3_emb instead");
  EXPECT_EQ(load_arguments({"--task_type=embedding", "--use_chat_template=true"}).data.template_name, "");
  EXPECT_EQ(load_arguments({"--task_type=reranker", "--use_chat_template=false"}).data.template_name, "empty");
}

TEST(EmbeddingKeys, TokensOfRerankersAreTheModelsUnlessGiven) {
  const FinetuningArgs absent = load_arguments({"--task_type=generative_reranker"}).finetuning;
  EXPECT_EQ(absent.reranker_positive_token + absent.reranker_negative_token, "");
  EXPECT_EQ(load_arguments({"--task_type=generative_reranker", "GENERATIVE_RERANKER_POSITIVE_TOKEN=relevant"})
                .finetuning.reranker_positive_token,
            "relevant");
}

TEST(EmbeddingKeys, SentenceTransformersNamesHaveItsTemperature) {
  const FinetuningArgs f = load_arguments({"--task_type=embedding", "--loss_type=MultipleNegativesRankingLoss"}).finetuning;
  EXPECT_EQ(f.embedding_loss, "infonce");
  EXPECT_EQ(f.infonce_temperature, 0.05);
}

std::string error_of_training(const std::string& text) {
  return error_of_text("model_name_or_path: m\ndataset: d\noutput_dir: o\n" + text, {}, Purpose::train);
}

TEST(EmbeddingKeys, ValuesThatContradictEachOtherAreRefused) {
  EXPECT_CONTAINS(error_of_training("stage: embedding\nmrl_dims: {0: 1.0}\n"), "not a whole number");
  EXPECT_CONTAINS(error_of_training("stage: embedding\nmrl_dims: {8: 0}\n"), "all weights are 0");
  EXPECT_CONTAINS(error_of_training("stage: reranker\nreranker_type: generative\nreranker_negative_token: yes\n"),
                  "name two tokens");
  EXPECT_CONTAINS(
      error_of_training("stage: reranker\nreranker_loss: listwise\nmax_negative_samples: 1\nlistwise_min_group_size: 3\n"),
      "no group would have a loss");
  EXPECT_CONTAINS(error_of_training("stage: embedding\npacking: true\n"), "several sequences");
}

}  // namespace
}  // namespace qft::dialects
