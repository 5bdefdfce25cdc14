// The files that training writes for sentence-transformers and PEFT.
#include "qft/engine/sentence_transformers.h"

#include "qft/core/error.h"

#include <string>
#include <utility>

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

}  // namespace
}  // namespace qft::engine
