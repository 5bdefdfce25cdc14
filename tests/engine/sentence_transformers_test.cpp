// The files that training writes for sentence-transformers and PEFT.
#include "qft/engine/sentence_transformers.h"

#include "qft/core/error.h"

#include <string>
#include <utility>

#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

using nlohmann::json;

TEST(EmbeddingAdapter, NamesTheModuleOfItsBaseClass) {
  const std::pair<const char*, const char*> packages[] = {
      {"llama", "llama"},     {"qwen2_moe", "qwen2_moe"},  {"qwen3_moe", "qwen3_moe"},     {"qwen3_next", "qwen3_next"},
      {"qwen3_5", "qwen3_5"}, {"qwen3_5_text", "qwen3_5"}, {"qwen3_5_moe", "qwen3_5_moe"}, {"qwen3_5_moe_text", "qwen3_5_moe"}};
  for (const auto& [type, package] : packages) {
    model::ModelConfig base;
    base.model_type = type;
    base.architecture = "SomeForCausalLM";
    const json config = json::parse(without_task(R"({"task_type": "CAUSAL_LM", "r": 4})", base));
    EXPECT_TRUE(config.at("task_type").is_null());
    EXPECT_EQ(config.at("r"), 4);
    EXPECT_EQ(config.at("auto_mapping"),
              json({{"base_model_class", "SomeForCausalLM"},
                    {"parent_library", fmt::format("transformers.models.{0}.modeling_{0}", package)}}));
  }
}

/// The settings of a model that was trained from a base with these ones.
json settings_after(const json& base, const std::string& query, const std::string& document, const char* stage = "embedding") {
  const test::TempDir dir;
  test::write_bytes(dir / "config_sentence_transformers.json", base.dump());
  config::RunConfig config;
  config.model.model_name_or_path = dir.path().string();
  config.finetuning.stage = stage;
  config.data.query_prompt = query;
  config.data.document_prompt = document;
  return json::parse(sentence_settings(config));
}

TEST(SentenceSettings, TheDefaultPromptStaysOnlyIfTrainingPutIt) {
  const json prompts = {{"query", "Find:"}, {"web", "Search:"}};
  const auto base = [&](const json& name) { return json{{"prompts", prompts}, {"default_prompt_name", name}}; };
  for (const char* name : {"query", "web"}) {
    const json without = settings_after(base(name), "", "");
    EXPECT_TRUE(without.at("default_prompt_name").is_null()) << name;
    EXPECT_EQ(without.at("prompts"), prompts) << name;
    EXPECT_TRUE(settings_after(base(name), "", "", "reranker").at("default_prompt_name").is_null()) << name;
  }
  const json with = settings_after(base("query"), "Find:", "");
  EXPECT_EQ(with.at("default_prompt_name"), "query");
  EXPECT_EQ(with.at("prompts"), json({{"query", "Find:"}, {"web", "Search:"}, {"document", ""}}));
  EXPECT_EQ(settings_after(base("query"), "Another:", "").at("default_prompt_name"), "query") << "query is now the training's";
  EXPECT_TRUE(settings_after(base("web"), "Another:", "").at("default_prompt_name").is_null());
  EXPECT_TRUE(settings_after(base(nullptr), "Find:", "").at("default_prompt_name").is_null());
}

}  // namespace
}  // namespace qft::engine
