// Exports of embedding models and rerankers keep the files with which sentence-transformers reads them.
#include "qft/model/sentence_files.h"

#include "qft/io/model_files.h"
#include "qft/model/adapter_config.h"
#include "qft/model/export.h"

#include <algorithm>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include "model/tensor_files.h"
#include "tiny_config.h"
#include <gtest/gtest.h>

namespace qft::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;

json entry(const std::string& type, const std::string& path) {
  return {{"idx", 0}, {"name", "0"}, {"path", path}, {"type", "sentence_transformers.models." + type}};
}

const json kEmbeddingModules = {entry("Transformer", ""), entry("Pooling", "1_Pooling"), entry("Normalize", "2_Normalize")};

/// Writes modules.json and the configurations of an embedding model; `mark` tells whose they are.
void write_embedding_files(const fs::path& dir, const std::string& mark) {
  write_bytes(dir / kModulesFile, kEmbeddingModules.dump());
  write_bytes(dir / "1_Pooling/config.json", json{{"pooling_mode_lasttoken", true}, {"mark", mark}}.dump());
  write_bytes(dir / kSentenceSettingsFile, json{{"mark", mark}}.dump());
}

void write_tokenizer_files(const fs::path& dir, const std::string& mark) {
  const json pad = {{"id", 7}, {"content", "<pad>"}};
  write_bytes(dir / io::kTokenizerFile,
              json{{"model", {{"vocab", {{"a", 0}}}}}, {"added_tokens", json::array({pad})}, {"post_processor", mark}}.dump());
  write_bytes(dir / io::kTokenizerConfigFile, json{{"pad_token", "<pad>"}}.dump());
}

/// Writes a tiny untied llama with this prefix for the decoder's tensors.
void write_base(const fs::path& dir, const std::string& prefix, bool lm_head) {
  json config = base("llama");
  config["tie_word_embeddings"] = false;
  config["architectures"] = {"LlamaForCausalLM"};
  write_bytes(dir / io::kModelConfigFile, config.dump());
  const ModelConfig usual = ModelConfig::parse(config.dump(), "config.json");
  std::vector<TestTensor> tensors;
  for (const UnitSpec& unit : ModelSpec::build(usual, Finetuning::full, {}, {}, Head::vector(usual.hidden_size)).units)
    for (const ParamSpec& param : unit.params)
      tensors.push_back({prefix + param.name.substr(std::string_view("model.").size()), param.shape, 1.0F});
  if (lm_head) tensors.push_back({kLmHead, {usual.vocab_size, usual.hidden_size}, 1.0F});
  write_tensors(dir / io::kSingleFile, tensors);
  write_tokenizer_files(dir, "base");
}

/// Writes an adapter of q_proj; of a classifier with a label if the task is SEQ_CLS.
void write_adapter(const fs::path& dir, const json& task) {
  write_bytes(
      dir / kAdapterConfigFile,
      json{{"peft_type", "LORA"}, {"task_type", task}, {"r", 4}, {"lora_alpha", 8}, {"target_modules", {"q_proj"}}}.dump());
  std::vector<TestTensor> tensors;
  for (int layer = 0; layer < 2; ++layer) {
    const std::string q = fmt::format("{}model.layers.{}.self_attn.q_proj", kAdapterPrefix, layer);
    tensors.push_back({q + kLoraA, {4, 24}, 1.0F});
    tensors.push_back({q + kLoraB, {24, 4}, 1.0F});
  }
  if (task == "SEQ_CLS") tensors.push_back({std::string(kAdapterPrefix) + kScore, {1, 24}, 1.0F});
  write_tensors(dir / kAdapterWeightsFile, tensors);
}

ExportRequest request_of(const TempDir& dir, bool adapted) {
  ExportRequest request;
  request.base = request.tokenizer = dir / "base";
  if (adapted) request.adapter = dir / "adapter";
  request.target = dir / "merged";
  return request;
}

std::string mark_of(const fs::path& file) {
  return json::parse(read_bytes(file)).at("mark");
}

TEST(SentenceFiles, OfAnAdapterGoWithItsTokenizerToTheMergedModel) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_adapter(dir / "adapter", nullptr);
  write_embedding_files(dir / "base", "base");
  write_embedding_files(dir / "adapter", "adapter");
  write_tokenizer_files(dir / "adapter", "with end");
  EXPECT_EQ(export_model(io::posix_storage(), request_of(dir, true)).merged, 2);
  EXPECT_EQ(json::parse(read_bytes(dir / "merged/modules.json")), kEmbeddingModules);
  EXPECT_EQ(mark_of(dir / "merged/1_Pooling/config.json"), "adapter");
  EXPECT_EQ(mark_of(dir / "merged/config_sentence_transformers.json"), "adapter");
  EXPECT_EQ(read_bytes(dir / "merged/tokenizer.json"), read_bytes(dir / "adapter/tokenizer.json"));
}

TEST(SentenceFiles, ANamedTokenizerIsCopiedUnchanged) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_adapter(dir / "adapter", nullptr);
  write_embedding_files(dir / "adapter", "adapter");
  write_tokenizer_files(dir / "adapter", "with end");
  ExportRequest request = request_of(dir, true);
  request.fixed_tokenizer = true;
  export_model(io::posix_storage(), request);
  EXPECT_EQ(read_bytes(dir / "merged/tokenizer.json"), read_bytes(dir / "base/tokenizer.json"));
}

TEST(SentenceFiles, OfTheBaseGoToACopyInAnotherTypeWithEveryModule) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_embedding_files(dir / "base", "base");
  json modules = kEmbeddingModules;
  modules.push_back(entry("Dense", "3_Dense"));
  write_bytes(dir / "base/modules.json", modules.dump());
  write_bytes(dir / "base/3_Dense/model.safetensors", "weights");
  write_bytes(dir / "base/3_Dense/more/config.json", "{}");
  ExportRequest request = request_of(dir, false);
  request.dtype = DType::bf16;
  export_model(io::posix_storage(), request);
  EXPECT_EQ(mark_of(dir / "merged/1_Pooling/config.json"), "base");
  EXPECT_EQ(read_bytes(dir / "merged/3_Dense/model.safetensors"), "weights");
  EXPECT_EQ(read_bytes(dir / "merged/3_Dense/more/config.json"), "{}");
}

TEST(SentenceFiles, TheTokenizerOfTheirFolderIsNotChanged) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_embedding_files(dir / "base", "base");
  ExportRequest request = request_of(dir, false);
  request.changes.chat_template = "another";
  export_model(io::posix_storage(), request);
  EXPECT_FALSE(fs::exists(dir / "merged/chat_template.jinja"));
  write_tokenizer_files(dir / "named", "named");
  fs::remove_all(dir / "merged");
  request.tokenizer = dir / "named";
  export_model(io::posix_storage(), request);
  EXPECT_EQ(read_bytes(dir / "merged/tokenizer.json"), read_bytes(dir / "named/tokenizer.json"));
  EXPECT_EQ(read_bytes(dir / "merged/chat_template.jinja"), "another");
}

TEST(SentenceFiles, OfTheBaseServeAnAdapterOfTheSameTask) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_embedding_files(dir / "base", "base");
  for (const auto& [task, kept] : {std::pair<json, bool>(nullptr, true), {"FEATURE_EXTRACTION", true}, {"CAUSAL_LM", false}}) {
    write_adapter(dir / "adapter", task);
    fs::remove_all(dir / "merged");
    export_model(io::posix_storage(), request_of(dir, true));
    EXPECT_EQ(fs::exists(dir / "merged/modules.json"), kept) << task;
    EXPECT_EQ(fs::exists(dir / "merged/1_Pooling"), kept) << task;
  }
}

TEST(SentenceFiles, ARerankersConfigNamesThePaddingToken) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_adapter(dir / "adapter", "SEQ_CLS");
  write_tokenizer_files(dir / "adapter", "adapter");
  export_model(io::posix_storage(), request_of(dir, true));
  EXPECT_FALSE(json::parse(read_bytes(dir / "merged/config.json")).contains("pad_token_id")) << "a classifier of texts";
  fs::remove_all(dir / "merged");
  write_bytes(dir / "adapter/modules.json", json::array({entry("Transformer", "")}).dump());
  export_model(io::posix_storage(), request_of(dir, true));
  const json config = json::parse(read_bytes(dir / "merged/config.json"));
  EXPECT_EQ(config.at("pad_token_id"), 7);
  EXPECT_EQ(config.at("architectures"), json::array({"LlamaForSequenceClassification"}));
}

/// Qwen3-Embedding-8B: untied, and the files have no lm_head.
TEST(SentenceFiles, AnEmbeddingModelNeedsNoLanguageModelHead) {
  const TempDir dir;
  for (const char* prefix : {"", "model."}) {
    fs::remove_all(dir / "base");
    write_base(dir / "base", prefix, false);
    write_embedding_files(dir / "base", "base");
    write_adapter(dir / "adapter", nullptr);
    for (const bool adapted : {false, true}) {
      fs::remove_all(dir / "merged");
      const ExportReport report = export_model(io::posix_storage(), request_of(dir, adapted));
      EXPECT_EQ(report.merged, adapted ? 2 : 0);
      const io::ModelFiles before = io::ModelFiles::open(dir / "base"), after = io::ModelFiles::open(dir / "merged");
      std::vector<std::string> had = before.names(), has = after.names();
      std::ranges::sort(had);
      std::ranges::sort(has);
      EXPECT_EQ(has, had);
      EXPECT_EQ(json::parse(read_bytes(dir / "merged/config.json")).at("tie_word_embeddings"), false);
    }
  }
}

TEST(SentenceFiles, ALanguageModelStillNeedsItsHead) {
  const TempDir dir;
  write_base(dir / "base", "model.", false);
  EXPECT_TRUE(contains(error_of([&] { export_model(io::posix_storage(), request_of(dir, false)); }), kLmHead));
  write_base(dir / "base", "", false);
  write_adapter(dir / "adapter", "CAUSAL_LM");
  EXPECT_TRUE(contains(error_of([&] { export_model(io::posix_storage(), request_of(dir, true)); }), "stage embedding"));
}

TEST(SentenceFiles, AreNotLostInGguf) {
  const TempDir dir;
  write_base(dir / "base", "model.", true);
  write_embedding_files(dir / "base", "base");
  ExportRequest request = request_of(dir, false);
  request.code = &export_code();
  for (const ExportFormat format : {ExportFormat::gguf, ExportFormat::gguf_q8_0}) {
    request.format = format;
    const std::string said = error_of([&] { export_model(io::posix_storage(), request); });
    EXPECT_TRUE(contains(said, "modules.json") && contains(said, "without export_format")) << said;
  }
  EXPECT_FALSE(fs::exists(dir / "merged"));
}

TEST(SentenceFiles, OutsideTheFolderAreRefused) {
  const TempDir dir;
  const auto refusal = [&](const json& modules) {
    write_bytes(dir / "modules.json", modules.dump());
    return error_of([&] { sentence_modules(dir.path()); });
  };
  EXPECT_TRUE(contains(refusal({entry("Transformer", ""), entry("Pooling", "../secret")}), "path '../secret'"));
  EXPECT_TRUE(contains(refusal(json::array({entry("Transformer", "0_Transformer")})), "path '0_Transformer'"));
  EXPECT_TRUE(contains(refusal(json::object()), "not a list of modules"));
  EXPECT_TRUE(contains(refusal(json::array({1})), "expected modules"));
  EXPECT_TRUE(contains(refusal({{{"type", "a.Pooling"}}, {{"path", 1}}}), "expected modules"));
}

}  // namespace
}  // namespace qft::model
