// The files that are copied with a model, and the places of its chat templates.
#include "qft/io/companion_files.h"

#include <filesystem>
#include <string>
#include <vector>

#include "io/temp_dir.h"
#include <gtest/gtest.h>

namespace qft::io {

using test::contains;
using test::error_of;
using test::read_bytes;
using test::TempDir;
using test::write_bytes;
namespace fs = std::filesystem;

void fill(const TempDir& dir, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    fs::create_directories((dir / name).parent_path());
    write_bytes(dir / name, "{}");
  }
}

std::vector<std::string> texts(const std::vector<fs::path>& paths) {
  std::vector<std::string> names;
  for (const fs::path& path : paths) names.push_back(path.generic_string());
  return names;
}

TEST(CompanionFiles, WhatSavingATokenizerOrAProcessorWritesGoesAlong) {
  const std::vector<std::string> tokenizers = {"tokenizer.json",
                                               "tokenizer_config.json",
                                               "special_tokens_map.json",
                                               "added_tokens.json",
                                               "vocab.json",
                                               "vocab.txt",
                                               "merges.txt",
                                               "tokenizer.model",
                                               "spiece.model",
                                               "qwen.tiktoken",
                                               "source.spm",
                                               "tekken.json",
                                               "chat_template.jinja",
                                               "chat_template.json"};
  const std::vector<std::string> processors = {"processor_config.json",          "preprocessor_config.json",
                                               "video_preprocessor_config.json", "image_processor_config.json",
                                               "feature_extractor.json",         "audio_tokenizer_config.json"};
  for (const std::string& name : tokenizers) EXPECT_EQ(companion_of(name), Companion::tokenizer) << name;
  for (const std::string& name : processors) EXPECT_EQ(companion_of(name), Companion::processor) << name;
  for (const char* name :
       {"config.json", "model.safetensors", "model.safetensors.index.json", "adapter_config.json", "trainer_state.json",
        "trainer_log.jsonl", "train_results.json", "README.md", "tokenizer.json.bak", "modeling_own.py", "data.json"})
    EXPECT_EQ(companion_of(name), Companion::none) << name;
}

TEST(CompanionFiles, CodeGoesAlongWhereAnAutoMapNamesIt) {
  const TempDir dir;
  fill(dir, {"tokenizer_config.json", "tokenization_own.py"});
  EXPECT_EQ(texts(companion_files(dir.path())), std::vector<std::string>{"tokenizer_config.json"});
  write_bytes(dir / "tokenizer_config.json", R"({"auto_map": {"AutoTokenizer": ["tokenization_own.T", null]}})");
  EXPECT_EQ(texts(companion_files(dir.path())), (std::vector<std::string>{"tokenization_own.py", "tokenizer_config.json"}));
}

TEST(CompanionFiles, AProcessorComesFromTheModelWhereTheTokenizersFolderHasNone) {
  const TempDir tokenizer, model, to;
  fill(tokenizer, {"tokenizer.json", "additional_chat_templates/rag.jinja", "additional_chat_templates/notes.txt"});
  fill(model, {"tokenizer.json", "vocab.json", "preprocessor_config.json"});
  write_bytes(tokenizer / "tokenizer.json", "theirs");
  write_bytes(to / "tokenizer.model", "of another program");
  const auto copied = copy_companions(posix_storage(), tokenizer.path(), model.path(), to.path());
  EXPECT_EQ(texts(copied),
            (std::vector<std::string>{"tokenizer.json", "additional_chat_templates/rag.jinja", "preprocessor_config.json"}));
  for (const fs::path& file : copied) EXPECT_TRUE(fs::exists(to.path() / file)) << file;
  EXPECT_EQ(read_bytes(to / "tokenizer.json"), "theirs");
  EXPECT_EQ(read_bytes(to / "tokenizer.model"), "of another program");
}

TEST(ChatTemplates, AreFoundAsTransformersFindsThem) {
  const TempDir dir;
  EXPECT_FALSE(read_chat_templates(dir.path()).main);
  write_bytes(dir / "chat_template.json", R"({"chat_template": "of the processor"})");
  EXPECT_EQ(read_chat_templates(dir.path()).main, "of the processor");
  write_bytes(dir / "tokenizer_config.json", R"({"chat_template": "text"})");
  EXPECT_EQ(read_chat_templates(dir.path()).main, "text");
  write_bytes(dir / "tokenizer_config.json",
              R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(read_chat_templates(dir.path()).main, "d");
  EXPECT_EQ(read_chat_templates(dir.path()).named, (std::map<std::string, std::string>{{"rag", "r"}}));
  fill(dir, {"additional_chat_templates/tool_use.jinja"});
  EXPECT_FALSE(read_chat_templates(dir.path()).main);  // transformers reads no configuration in this case
  write_bytes(dir / "chat_template.jinja", "file");
  EXPECT_EQ(read_chat_templates(dir.path()).main, "file");
  EXPECT_EQ(read_chat_templates(dir.path()).named, (std::map<std::string, std::string>{{"tool_use", "{}"}}));
}

TEST(ChatTemplates, AListOfAnotherFormIsAnErrorWithTheFile) {
  const TempDir dir;
  write_bytes(dir / "tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  const std::string error = error_of([&] { read_chat_templates(dir.path()); });
  EXPECT_TRUE(contains(error, "tokenizer_config.json") && contains(error, R"({"name":"default"})")) << error;
}

}  // namespace qft::io
