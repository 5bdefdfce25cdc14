// Keys on the command line, in all forms that people type.
#include "qft/config/command_line.h"

#include "config_files.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::config {
namespace {

CommandSpec train_spec() {
  CommandSpec spec{.name = "qft train", .summary = "Fine-tunes.", .run_file = CommandSpec::RunFile::required};
  spec.options.add_options()("output,o", boost::program_options::value<std::string>(), "a file")("eval", "a flag");
  return spec;
}

CommandLine parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "train");
  auto line = parse_command_line(train_spec(), static_cast<int>(arguments.size()), arguments.data());
  EXPECT_TRUE(line.has_value());
  return line.value_or(CommandLine{});
}

std::vector<std::string> typed(std::vector<const char*> arguments) {
  return parse(std::move(arguments)).overrides;
}

using Texts = std::vector<std::string>;

TEST(TypedKeys, HaveTheirFormsOfValues) {
  EXPECT_EQ(typed({"--learning_rate", "1e-4", "lora_rank=4", "--max_steps", "-1", "--packing", "true"}),
            (Texts{"--learning_rate=1e-4", "lora_rank=4", "--max_steps=-1", "--packing=true"}));
  EXPECT_EQ(typed({"--learning_rate=1e-4", "--default_system=a b", "--output-dir", "o"}),
            (Texts{"--learning_rate=1e-4", "--default_system=a b", "--output_dir=o"}));
}

TEST(TypedKeys, StandAloneForTrue) {
  EXPECT_EQ(typed({"--packing", "--bf16", "--fp16", "False", "--do-train", "1", "--no_tf32", "--use_cpu=0"}),
            (Texts{"--packing=true", "--bf16=true", "--fp16=false", "--do_train=true", "--tf32=false", "--use_cpu=false"}));
}

TEST(TypedKeys, TakeSeveralValuesForLists) {
  EXPECT_EQ(typed({"--dataset", "a#500", "b.json", "--lora_target", "q_proj", "k_proj", "--bf16"}),
            (Texts{R"(--dataset=["a#500","b.json"])", R"(--lora_target=["q_proj","k_proj"])", "--bf16=true"}));
  EXPECT_EQ(typed({"--dataset", "a", "lora_rank=4"}), (Texts{"--dataset=a", "lora_rank=4"}));
}

TEST(TypedKeys, LeaveRunFileAndProgramOptionsAlone) {
  const CommandLine line = parse({"--packing", "run.yaml", "-o", "x.h5", "--eval", "--lora_rank", "4", "--log-level", "debug"});
  EXPECT_EQ(line.run_file, "run.yaml");
  EXPECT_EQ(line.options["output"].as<std::string>(), "x.h5");
  EXPECT_EQ(line.options.count("eval"), 1u);
  EXPECT_EQ(line.overrides, (Texts{"--packing=true", "--lora_rank=4"}));
  EXPECT_EQ(line.log_level, log::Severity::debug);
  EXPECT_EQ(parse({"--deepspeed", "ds.json", "run.yaml"}).overrides, Texts{"--deepspeed=ds.json"});
}

TEST(TypedKeys, NeedNoRunFile) {
  const CommandLine line = parse({"--model_name_or_path", "m", "--dataset", "d", "--output_dir", "o", "--lora_rank", "4"});
  EXPECT_TRUE(line.run_file.empty());
  EXPECT_EQ(line.load(Purpose::train).finetuning.lora_rank, 4);
  EXPECT_CONTAINS(error_of([&] { parse({"--lora_rank", "4"}).load(Purpose::train); }), "needs model_name_or_path");
}

TEST(TypedKeys, ExplainMistakes) {
  EXPECT_CONTAINS(error_of([] { parse({"--learning_rat", "1"}); }),
                  "--learning_rat: there is no such option or key: did you mean 'learning_rate'?");
  EXPECT_CONTAINS(error_of([] { parse({"--learning_rate"}); }), "--learning_rate needs a value");
  EXPECT_CONTAINS(error_of([] { parse({"--learning_rate", "--bf16"}); }), "--learning_rate needs a value");
  EXPECT_CONTAINS(error_of([] { parse({"--dataset", "--bf16"}); }), "--dataset needs a value");
  EXPECT_CONTAINS(error_of([] { parse({"--default_system", "You", "are"}); }), "unexpected argument 'are'");
  EXPECT_CONTAINS(error_of([] { parse({"--learning_rate", "fast"}).load(Purpose::any); }),
                  "command line: --learning_rate=fast: expected a number");
  EXPECT_CONTAINS(error_of([] { parse({"-x", "run.yaml"}); }), "-x");
  EXPECT_CONTAINS(error_of([] { parse({"--dataset", "a", "b\xff"}); }), "qft train: --dataset: not valid UTF-8");
}

TEST(TypedKeys, KnowTheCommandsOfOtherTools) {
  EXPECT_CONTAINS(error_of([] { parse({"CUDA_VISIBLE_DEVICES=0,1", "swift", "sft", "--lora_rank", "4"}); }),
                  "'swift' is part of another tool's command: remove it and keep the keys after it; mpirun");
  EXPECT_CONTAINS(error_of([] { parse({"NPROC_PER_NODE=8", "--model_name_or_path", "m"}).load(Purpose::train); }),
                  "command line: NPROC_PER_NODE=8: not a key: set environment variables before the command");
}

}  // namespace
}  // namespace qft::config
