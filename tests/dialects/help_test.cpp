// qft help for keys of other tools, and the lists of all their keys.
#include "qft/config/help.h"

#include <fstream>

#include "dialect_files.h"
#include "test_paths.h"

namespace qft::dialects {
namespace {

const std::string kLists = test::kSourceDir + "/tests/dialects/";

std::string describe(const std::string& name) {
  return config::describe_key(name, all());
}

TEST(Help, ExplainsAKeyOfAnyTool) {
  EXPECT_CONTAINS(describe("overwrite_cache"), "has no effect in qft: ");
  EXPECT_CONTAINS(describe("tuner_type"), "finetuning_type: ");
  EXPECT_CONTAINS(describe("weight_decay"), "in files optimizer.params.weight_decay (DeepSpeed) of launchers");
  EXPECT_CONTAINS(describe("lora_rank"), "also     peft_config.r, lora_r, lora_dim, r of other tools");
  EXPECT_CONTAINS(error_of([] { describe("lora_rnak"); }), "there is no key 'lora_rnak': did you mean 'lora_rank'?");
  for (const char* list : {"foreign_key_names.txt", "swift_key_names.txt", "megatron_key_names.txt"}) {
    std::ifstream file(kLists + list);
    for (std::string name; std::getline(file, name);) EXPECT_FALSE(describe(name).empty()) << name;
  }
}

void expect_known(const std::string& list, std::size_t least = 300) {
  std::ifstream file(kLists + list);
  std::size_t count = 0;
  for (std::string name; std::getline(file, name); ++count) {
    try {
      load_text(name + ": 0.5\n");
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("unknown key"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(count, least);
}

TEST(Keys, EveryKeyOfLlamaFactoryHasAClass) {
  expect_known("foreign_key_names.txt");
}

TEST(Keys, EveryKeyOfSwiftHasAClass) {
  expect_known("swift_key_names.txt");
}

// The arguments of ms-swift's `megatron sft`.
TEST(Keys, EveryKeyOfMegatronHasAClass) {
  expect_known("megatron_key_names.txt", 200);
}

}  // namespace
}  // namespace qft::dialects
