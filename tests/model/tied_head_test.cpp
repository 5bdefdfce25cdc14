// A head in the files of a model that ties it: ignored only if it equals the embeddings.
#include "qft/model/config.h"
#include "qft/model/spec.h"

#include <string>

#include "io/temp_dir.h"
#include "model/tensor_files.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

using nlohmann::json;
using test::contains;
using test::TempDir;
using test::write_bytes;

constexpr const char* kTable = "model.embed_tokens.weight";

ModelConfig load_model(const TempDir& dir, const json& config, const std::vector<TestTensor>& tensors) {
  write_bytes(dir / "config.json", config.dump());
  write_tensors(dir / "model.safetensors", tensors);
  return ModelConfig::load(dir.path());
}

TEST(TiedHead, OneThatDiffersIsUntied) {
  const TempDir dir;
  const ModelConfig apart = load_model(dir, base("llama"), {{kTable, {101, 24}, 1}, {kLmHead, {101, 24}, 2}});
  EXPECT_FALSE(apart.tie_word_embeddings);
  ASSERT_EQ(apart.notes.size(), 1u);
  EXPECT_TRUE(contains(apart.notes.front(), "lm_head.weight that differs from the embeddings"));
  EXPECT_TRUE(apart.rewritten);
  EXPECT_EQ(json::parse(apart.raw)["tie_word_embeddings"], false) << "models that are written say so";
  EXPECT_FALSE(ModelSpec::build(apart, Finetuning::full, {}).ties_head());
  EXPECT_FALSE(apart.scaled_to(4096, "linear").tie_word_embeddings);
}

TEST(TiedHead, OneThatIsTheEmbeddingsOrIsMissingStaysTied) {
  const TempDir dir;
  const ModelConfig equal = load_model(dir, base("llama"), {{kTable, {101, 24}, 1}, {kLmHead, {101, 24}, 1}});
  EXPECT_TRUE(equal.tie_word_embeddings && equal.notes.empty() && !equal.rewritten);
  const ModelConfig alone = load_model(dir, base("llama"), {{kTable, {101, 24}, 1}});
  EXPECT_TRUE(alone.tie_word_embeddings && alone.notes.empty());
  const ModelConfig other_rows = load_model(dir, base("llama"), {{kTable, {101, 24}, 1}, {kLmHead, {102, 24}, 1}});
  EXPECT_FALSE(other_rows.tie_word_embeddings);
}

TEST(TiedHead, TheLastOfManyElementsIsCompared) {
  const TempDir dir;
  json config = base("llama");
  config["vocab_size"] = 5000;
  config["hidden_size"] = 1200;  // more than is read at once
  const std::string path = dir / "model.safetensors";
  load_model(dir, config, {{kTable, {5000, 1200}, 1}, {kLmHead, {5000, 1200}, 1}});
  std::string bytes = test::read_bytes(path);
  bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
  write_bytes(path, bytes);
  EXPECT_FALSE(ModelConfig::load(dir.path()).tie_word_embeddings);
}

// transformers' class for vision-language models follows config.json, the text class follows text_config; written files say the
// same in both.
TEST(TiedHead, OfAModelThatSeesTheTextConfigMayTieAlone) {
  const TempDir dir;
  constexpr const char* kInner = "model.language_model.embed_tokens.weight";
  json text = base("qwen3_5");
  text["tie_word_embeddings"] = true;
  const json whole = {{"model_type", "qwen3_5"}, {"text_config", text}};
  const ModelConfig apart = load_model(dir, whole, {{kInner, {101, 24}, 1}, {kLmHead, {101, 24}, 2}});
  EXPECT_FALSE(apart.tie_word_embeddings);
  const json said = json::parse(apart.raw);
  EXPECT_TRUE(said["tie_word_embeddings"] == false && said["text_config"]["tie_word_embeddings"] == false);
  json outer = whole;
  outer["tie_word_embeddings"] = false;
  EXPECT_FALSE(load_model(dir, outer, {{kInner, {101, 24}, 1}, {kLmHead, {101, 24}, 1}}).tie_word_embeddings);
  const ModelConfig tied = load_model(dir, outer, {{kInner, {101, 24}, 1}});
  EXPECT_TRUE(tied.tie_word_embeddings && !tied.notes.empty());
  EXPECT_EQ(json::parse(tied.raw)["tie_word_embeddings"], true);
}

// As transformers saves a text model taken out of a vision-language model.
TEST(TextNames, AreThoseOfTheFiles) {
  const TempDir dir;
  json text = base("qwen3_5");
  text["model_type"] = "qwen3_5_text";
  const json whole = {{"model_type", "qwen3_5"}, {"text_config", text}};
  for (const json& config : {text, whole})
    for (const std::string& prefix : {std::string("model."), std::string("model.language_model.")}) {
      const ModelConfig loaded =
          load_model(dir, config, {{prefix + "embed_tokens.weight", {101, 24}, 1}, {prefix + "norm.weight", {24}}});
      EXPECT_EQ(loaded.text_prefix, prefix);
      EXPECT_EQ(loaded.scaled_to(4096, "linear").text_prefix, prefix);
      EXPECT_EQ(loaded.module_prefix, config == text ? "model." : "model.language_model.") << "the names in the class";
      LoraConfig lora;
      lora.rank = 2;
      lora.set_targets("q_proj");
      const ModelSpec spec = ModelSpec::build(loaded, Finetuning::adapter, lora);
      EXPECT_EQ(spec.adapter.targets().name_in_files(prefix + "layers.0"), loaded.module_prefix + "layers.0");
    }
}

}  // namespace
}  // namespace qft::model
