// Changes that training makes to a tokenizer's files, and their effect on GGUF.
#include "qft/model/tokenizer_changes.h"

#include "qft/io/file.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "io/temp_dir.h"
#include "model/gguf_tokenizer.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::model {

using nlohmann::json;
using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;
namespace fs = std::filesystem;

const TokenizerChanges kChanges = {.chat_template = "trained", .end_token = "<|end|>", .end_id = 3};

/// A model folder with the tokens a, b, ab, <|end|> (3), <|stop|> (4).
struct Base {
  TempDir dir;
  Base() {
    const auto added = [](int id, const char* text, bool special) {
      return json{{"id", id}, {"content", text}, {"special", special}};
    };
    write("tokenizer.json", {{"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}},
                             {"pre_tokenizer", {{"type", "ByteLevel"}}},
                             {"added_tokens", {added(3, "<|end|>", true), added(4, "<|stop|>", false)}}});
    write("tokenizer_config.json", {{"eos_token", "<|stop|>"}, {"model_max_length", 7}});
    write("config.json", {{"eos_token_id", 4}, {"bos_token_id", 0}});
  }
  void write(const std::string& name, const json& content) const {
    fs::create_directories((dir / name).parent_path());
    write_bytes(dir / name, content.dump());
  }
  json written(const TokenizerChanges& changes, const std::string& name) const {
    const TempDir to;
    write_tokenizer(io::posix_storage(), dir.path(), dir.path(), to.path(), changes);
    write_generation_config(io::posix_storage(), dir.path(), to.path(), changes);
    if (!fs::exists(to / name)) return nullptr;
    return name.ends_with(".json") ? json::parse(read_bytes(to / name)) : json(read_bytes(to / name));
  }
};

TEST(TokenizerChanges, FilesThatNothingChangesStayTheSameBytes) {
  const Base base;
  write_bytes(base.dir / "tokenizer_config.json", "{\"eos_token\" :  \"<|end|>\"}");
  const TempDir to;
  write_tokenizer(io::posix_storage(), base.dir.path(), base.dir.path(), to.path(), {.end_token = "<|end|>", .end_id = 3});
  EXPECT_EQ(read_bytes(to / "tokenizer_config.json"), "{\"eos_token\" :  \"<|end|>\"}");
}

TEST(TokenizerChanges, TheEndTokenStandsInEveryFileThatNamesOne) {
  const Base base;
  base.write("special_tokens_map.json", {{"eos_token", {{"content", "<|stop|>"}, {"lstrip", false}}}});
  EXPECT_EQ(base.written(kChanges, "tokenizer_config.json"), json({{"eos_token", "<|end|>"}, {"model_max_length", 7}}));
  EXPECT_EQ(base.written(kChanges, "special_tokens_map.json"),
            json({{"eos_token", {{"content", "<|end|>"}, {"lstrip", false}}}}));
}

TEST(TokenizerChanges, TheEndTokensOfTheModelComeBehindTheTrainedOne) {
  const Base base;
  EXPECT_EQ(base.written(kChanges, "generation_config.json"), json({{"eos_token_id", {3, 4}}, {"bos_token_id", 0}}));
  base.write("generation_config.json", {{"eos_token_id", {4, 2, 3}}, {"top_k", 9}});
  EXPECT_EQ(base.written(kChanges, "generation_config.json"), json({{"eos_token_id", {3, 4, 2}}, {"top_k", 9}}));
  base.write("generation_config.json", {{"top_k", 9}});
  EXPECT_EQ(base.written(kChanges, "generation_config.json")["eos_token_id"], json({3, 4}));
  base.write("generation_config.json", {{"eos_token_id", 3}});
  EXPECT_EQ(base.written(kChanges, "generation_config.json"), json({{"eos_token_id", 3}}));
  EXPECT_EQ(base.written({}, "generation_config.json"), json({{"eos_token_id", 3}}));
}

TEST(TokenizerChanges, AnEndTokenThatConfigJsonHasAlreadyNeedsNoFile) {
  const Base base;
  EXPECT_EQ(base.written({.end_token = "<|stop|>", .end_id = 4}, "generation_config.json"), nullptr);
  base.write("config.json", {{"text_config", {{"eos_token_id", 4}}}});
  EXPECT_EQ(base.written({.end_token = "<|stop|>", .end_id = 4}, "generation_config.json"), nullptr);
  EXPECT_EQ(base.written(kChanges, "generation_config.json"), json({{"eos_token_id", {3, 4}}}));
}

TEST(TokenizerChanges, TheTemplateStandsWhereverTheFilesHaveOne) {
  const Base base;
  EXPECT_EQ(base.written(kChanges, "chat_template.jinja"), "trained");
  EXPECT_EQ(base.written(kChanges, "tokenizer_config.json").contains("chat_template"), false);
  base.write("tokenizer_config.json", {{"chat_template", "own"}});
  EXPECT_EQ(base.written(kChanges, "tokenizer_config.json")["chat_template"], "trained");
  base.write("chat_template.json", {{"chat_template", "own"}});
  EXPECT_EQ(base.written(kChanges, "chat_template.json"), json({{"chat_template", "trained"}}));
}

TEST(TokenizerChanges, NamedTemplatesStayButTheOneForTools) {
  const Base base;
  const auto named = [](const char* name) { return json{{"name", name}, {"template", "own"}}; };
  base.write("tokenizer_config.json", {{"chat_template", {named("default"), named("tool_use"), named("rag")}}});
  base.write("chat_template.json", {{"chat_template", "own"}});
  EXPECT_EQ(base.written(kChanges, "additional_chat_templates/rag.jinja"), "own");
  EXPECT_EQ(base.written(kChanges, "additional_chat_templates/tool_use.jinja"), nullptr);
  EXPECT_EQ(base.written(kChanges, "chat_template.json"), nullptr);  // transformers rejects it beside named templates
  EXPECT_EQ(base.written(kChanges, "tokenizer_config.json").contains("chat_template"), false);
}

TEST(TokenizerChanges, ATemplateThatAnEarlierSaveLeftIsReplaced) {
  const Base base;
  base.write("tokenizer_config.json", {{"chat_template", "own"}});
  const TempDir to;
  write_bytes(to / "chat_template.jinja", "from an earlier run");
  write_tokenizer(io::posix_storage(), base.dir.path(), base.dir.path(), to.path(), {});
  EXPECT_EQ(read_bytes(to / "chat_template.jinja"), "own");
}

TEST(TokenizerChanges, AnAdaptersFolderSaysWhatIsOtherwise) {
  const Base base, adapter;
  EXPECT_FALSE(changes_between(base.dir.path(), adapter.dir.path()).any());
  adapter.write("tokenizer_config.json", {{"eos_token", "<|end|>"}, {"chat_template", "trained"}});
  TokenizerChanges changes = changes_between(base.dir.path(), adapter.dir.path());
  EXPECT_EQ(changes.chat_template, "trained");
  EXPECT_EQ(changes.end_id, 3);
  adapter.write("tokenizer_config.json", {{"eos_token", "</s>"}});
  changes = changes_between(base.dir.path(), adapter.dir.path());
  EXPECT_FALSE(changes.any());
  EXPECT_TRUE(contains(changes.note, "</s>")) << changes.note;
  const TempDir none;
  EXPECT_FALSE(changes_between(base.dir.path(), none.path()).any());
}

template <class T>
T field(const io::GgufMetadata& metadata, const std::string& key) {
  const auto it = std::ranges::find(metadata, key, [](const auto& entry) { return entry.first; });
  EXPECT_TRUE(it != metadata.end()) << key;
  return it == metadata.end() ? T() : std::get<T>(it->second);
}

bool has(const io::GgufMetadata& metadata, const std::string& key) {
  return std::ranges::any_of(metadata, [&](const auto& entry) { return entry.first == key; });
}

TEST(GgufTokenizer, TokensThatLookSpecialAreControlTokens) {
  const Base base;
  json tokenizer = json::parse(read_bytes(base.dir / "tokenizer.json"));
  const std::vector<std::string> names = {"<\uff5cx\uff5c>", "<unused7>", "[@BOS@]", "<2mass>",
                                          "<pads>",          "<|x",       "called",  "</think>"};
  const std::vector<std::int32_t> kinds = {3, 3, 3, 3, 4, 4, 3, 4};
  for (const std::string& name : names)
    tokenizer["added_tokens"].push_back({{"id", tokenizer["added_tokens"].size() + 3}, {"content", name}, {"special", false}});
  base.write("tokenizer.json", tokenizer);
  base.write("tokenizer_config.json", {{"additional_special_tokens", {"called"}}});
  const auto metadata = gguf_tokenizer({base.dir.path(), base.dir.path()}, 13);
  const auto found = field<std::vector<std::int32_t>>(metadata, "tokenizer.ggml.token_type");
  EXPECT_EQ(std::vector<std::int32_t>(found.begin(), found.begin() + 5), (std::vector<std::int32_t>{1, 1, 1, 3, 3}));
  EXPECT_EQ(std::vector<std::int32_t>(found.begin() + 5, found.end()), kinds);
}

TEST(GgufTokenizer, RowsWithoutATokenHaveNamesThatNoTokenHas) {
  const Base base;
  json tokenizer = json::parse(read_bytes(base.dir / "tokenizer.json"));
  tokenizer["model"]["vocab"]["[PAD6]"] = 5;
  base.write("tokenizer.json", tokenizer);
  const auto metadata = gguf_tokenizer({base.dir.path(), base.dir.path()}, 8);
  EXPECT_EQ(field<std::vector<std::string>>(metadata, "tokenizer.ggml.tokens"),
            (std::vector<std::string>{"a", "b", "ab", "<|end|>", "<|stop|>", "[PAD6]", "[PAD6]_", "[PAD7]"}));
  const std::string error = error_of([&] { gguf_tokenizer({base.dir.path(), base.dir.path()}, 4); });
  EXPECT_TRUE(contains(error, "'[PAD6]' has id 5") && contains(error, "4 rows") && contains(error, "add-tokens")) << error;
}

TEST(GgufTokenizer, SpecialTokensThatOnlyTheModelNamesAreFoundThere) {
  const Base base;
  base.write("tokenizer_config.json", json::object());
  base.write("config.json", {{"text_config", {{"eos_token_id", {4, 3}}, {"pad_token_id", 99}}}});
  base.write("generation_config.json", {{"pad_token_id", 2}, {"eos_token_id", 3}});
  auto metadata = gguf_tokenizer({base.dir.path(), base.dir.path()}, 5);
  EXPECT_EQ(field<std::uint32_t>(metadata, "tokenizer.ggml.eos_token_id"), 4U);
  EXPECT_EQ(field<std::uint32_t>(metadata, "tokenizer.ggml.padding_token_id"), 2U);  // there is no row 99
  EXPECT_FALSE(has(metadata, "tokenizer.ggml.bos_token_id"));
  metadata = gguf_tokenizer({base.dir.path(), base.dir.path(), kChanges}, 5);
  EXPECT_EQ(field<std::uint32_t>(metadata, "tokenizer.ggml.eos_token_id"), 3U);
}

TEST(GgufTokenizer, TemplatesAreNamedAsInLlamaCpp) {
  const Base base;
  const auto named = [](const char* name, const char* text) { return json{{"name", name}, {"template", text}}; };
  base.write("tokenizer_config.json", {{"chat_template", {named("default", "d"), named("tool_use", "t"), named("my-rag", "r")}}});
  auto metadata = gguf_tokenizer({base.dir.path(), base.dir.path()}, 5);
  EXPECT_EQ(field<std::string>(metadata, "tokenizer.chat_template"), "d");
  EXPECT_EQ(field<std::string>(metadata, "tokenizer.chat_template.tool_use"), "t");
  EXPECT_EQ(field<std::string>(metadata, "tokenizer.chat_template.my_rag"), "r");
  EXPECT_EQ(field<std::vector<std::string>>(metadata, "tokenizer.chat_templates"),
            (std::vector<std::string>{"my_rag", "tool_use"}));
  metadata = gguf_tokenizer({base.dir.path(), base.dir.path(), kChanges}, 5);
  EXPECT_EQ(field<std::string>(metadata, "tokenizer.chat_template"), "trained");
  EXPECT_FALSE(has(metadata, "tokenizer.chat_template.tool_use"));
}

}  // namespace qft::model
