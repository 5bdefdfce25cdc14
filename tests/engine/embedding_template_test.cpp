// The template of an embedding model without the key template, and the tokens that its tokenizer.json then puts around texts.
#include "qft/encode/chat_template.h"
#include "qft/engine/sentence_transformers.h"
#include "qft/io/storage.h"

#include <filesystem>
#include <string>
#include <vector>

#include "encode/fixture.h"
#include "io/temp_dir.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::engine {
namespace {

using nlohmann::json;
using test::read_bytes;

constexpr const char* kChat =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kTrimming = "{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>{% endfor %}";

/// The post-processor of Qwen3-Embedding.
json appending(const std::string& token) {
  return {{"type", "TemplateProcessing"},
          {"single", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"SpecialToken", {{"id", token}, {"type_id", 0}}}}}},
          {"pair", json::array()},
          {"special_tokens", json::object()}};
}

/// A folder with the byte tokenizer, <|endoftext|>, and perhaps a chat template.
struct Folder {
  test::TempFolder folder;
  config::RunConfig config;
  explicit Folder(const char* chat, const json& post = nullptr) {
    test::write_byte_tokenizer(folder, chat != nullptr ? json{{"chat_template", chat}} : json::object());
    json tokenizer = json::parse(read_bytes(path("tokenizer.json")));
    json end = tokenizer["added_tokens"][0];
    end["id"] = 259;
    end["content"] = "<|endoftext|>";
    tokenizer["added_tokens"].push_back(end);
    tokenizer["post_processor"] = post;
    folder.write("tokenizer.json", tokenizer.dump());
    config.model.model_name_or_path = folder.path().string();
    config.finetuning.stage = "embedding";
  }
  std::filesystem::path path(const char* name) const { return folder.path() / name; }
  encode::ChatTemplate chat() const {
    return encode::ChatTemplate::from_config(config, tokenizer::Tokenizer::load(folder.path()));
  }
  /// Writes the files of sentence-transformers into the same folder, and returns the tokens around a text as one text.
  std::string written() const {
    write_sentence_transformers(config, model::Head::vector(16), io::posix_storage(), folder.path());
    const json tokenizer = json::parse(read_bytes(path("tokenizer.json")));
    std::string text;
    if (!tokenizer.at("post_processor").is_object()) return text;
    const json& step = tokenizer.at("post_processor").at("processors").back();
    for (const json& piece : step.at("single"))
      if (piece.contains("Sequence")) {
        text += "TEXT";
      } else {
        const std::string token = piece.at("SpecialToken").at("id");
        const json ids = step.at("special_tokens").at(token).at("ids");
        text += tokenizer::Tokenizer::load(folder.path())->decode(ids.get<std::vector<std::int32_t>>());
      }
    return text;
  }
};

TEST(EmbeddingTemplate, IsTheChatTemplateExceptOfEmbeddingModels) {
  EXPECT_TRUE(Folder(kChat).chat().is_jinja());
  EXPECT_EQ(Folder(nullptr).chat().spec().name, "qwen3_emb");
  EXPECT_EQ(Folder(kChat, appending("<|endoftext|>")).chat().spec().name, "qwen3_emb");
  EXPECT_TRUE(Folder(kChat, appending("<|im_end|>")).chat().is_jinja());
  const Folder described(kChat);
  described.folder.write("modules.json", "[]");
  EXPECT_EQ(described.chat().spec().name, "qwen3_emb");
  described.folder.write("sentence_bert_config.json", R"({"modality_config": {"text": {}, "message": {}}})");
  EXPECT_TRUE(described.chat().is_jinja());
}

TEST(EmbeddingTokenizer, PutsTheTemplateAroundTextsAndKeepsItAsDefault) {
  const Folder chat(kChat), plain(nullptr);
  EXPECT_EQ(chat.written(), "<|im_start|>user\nTEXT<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_TRUE(chat.chat().is_jinja()) << "of the written folder";
  EXPECT_FALSE(std::filesystem::exists(chat.path("sentence_bert_config.json")));
  EXPECT_EQ(plain.written(), "TEXT<|endoftext|>");
  EXPECT_EQ(plain.chat().spec().name, "qwen3_emb");
}

TEST(EmbeddingTokenizer, LeavesTextsThatTheTemplateChangesToTheChatTemplate) {
  const Folder folder(kTrimming);
  EXPECT_EQ(folder.written(), "");
  const json modalities = json::parse(read_bytes(folder.path("sentence_bert_config.json"))).at("modality_config");
  EXPECT_TRUE(modalities.contains("text")) << "sentence-transformers refuses plain texts without it";
  EXPECT_EQ(modalities.at("message").at("format"), "flat");
}

TEST(RerankerFiles, NameThePaddingTokenForAdapters) {
  Folder folder(kChat);
  folder.folder.write("tokenizer_config.json", json{{"pad_token", "<|end|>"}, {"chat_template", kChat}}.dump());
  folder.config.finetuning.stage = "reranker";
  folder.config.finetuning.reranker_type = "classification";
  write_sentence_transformers(folder.config, model::Head::classifier(1), io::posix_storage(), folder.folder.path());
  const json settings = json::parse(read_bytes(folder.path("sentence_bert_config.json")));
  EXPECT_EQ(settings.at("config_kwargs"), json({{"pad_token_id", 258}}));
}

}  // namespace
}  // namespace qft::engine
