// Command lines with keys of other tools.
#include "qft/config/command_line.h"

#include "dialect_files.h"

namespace qft::dialects {
namespace {

using Texts = std::vector<std::string>;

config::CommandLine parse(std::vector<const char*> arguments, Purpose purpose = Purpose::train) {
  const config::CommandSpec spec{
      .name = "qft train", .summary = "Fine-tunes.", .run_file = config::CommandSpec::RunFile::required, .purpose = purpose};
  auto line = config::parse_command_line(spec, static_cast<int>(arguments.size()), arguments.data(), 0, all());
  EXPECT_TRUE(line.has_value());
  return line.value_or(config::CommandLine{});
}

TEST(CommandLineOfAnyTool, TakesValuesAsQftsKeyDoes) {
  EXPECT_EQ(parse({"--target_modules", "q_proj", "k_proj", "--bf16"}).overrides,
            (Texts{R"(--target_modules=["q_proj","k_proj"])", "--bf16=true"}));
  EXPECT_EQ(parse({"--no_cuda"}).overrides, Texts{"--no_cuda=true"});  // a separate key
  EXPECT_EQ(parse({"--model_author", "x", "--model_name", "y", "z"}).overrides,
            (Texts{"--model_author=x", R"(--model_name=["y","z"])"}));
  EXPECT_EQ(parse({"--use_liger_kernel", "run.yaml"}).run_file, "run.yaml");
}

TEST(CommandLineOfAnyTool, LoadsWithItsKeys) {
  const RunConfig c = parse({"--model", "m", "--dataset", "d", "--output_dir", "o", "--lora_r", "4"}).load(Purpose::train);
  EXPECT_EQ(c.model.model_name_or_path, "m");
  EXPECT_EQ(c.finetuning.lora_rank, 4);
}

TEST(CommandLineOfAnyTool, KnowsItsCommands) {
  EXPECT_CONTAINS(error_of([] { parse({"torchrun", "--nproc_per_node", "8", "train.py", "--model", "m"}); }),
                  "'torchrun' is part of another tool's command: remove it and keep the keys after it; mpirun");
}

TEST(CommandLineOfAnyTool, SuggestsOnlyKeysThatAct) {
  for (const char* argument : {"--overwrite_cach", "overwrite_cach=true"}) {  // overwrite_cache has no effect
    const std::string error = error_of([&] { parse({"run.yaml", argument}).load(Purpose::any); });
    EXPECT_EQ(error.find("overwrite_cache'"), std::string::npos) << error;
  }
  EXPECT_CONTAINS(error_of([] { parse({"--target_module", "x"}); }), "did you mean 'target_modules'?");
}

TEST(CommandLineOfAnyTool, HasOneFolderOrKeyForTheAdapter) {
  const TempFolder folder;
  folder.write("tuned/adapter_config.json", "{}");
  const std::string tuned = folder.path() + "/tuned";
  EXPECT_CONTAINS(error_of([&] { parse({tuned.c_str(), "--adapters=x"}, Purpose::generate); }), "are both given: keep one");
  EXPECT_EQ(parse({tuned.c_str(), "--val_dataset=v"}, Purpose::eval).overrides,
            (Texts{"adapter_name_or_path=[\"" + tuned + "\"]", "output_dir=" + tuned + "-eval", "--val_dataset=v"}));
}

}  // namespace
}  // namespace qft::dialects
