// The command line of all programs.
#include "qft/config/command_line.h"

#include "config_files.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::config {
namespace {

CommandSpec ranks_spec() {
  CommandSpec spec{.name = "qft train", .summary = "Fine-tunes.", .run_file = CommandSpec::RunFile::required};
  spec.machine_readable = true;
  spec.options.add_options()("ranks", boost::program_options::value<int>(), "ranks to plan for");
  return spec;
}

std::optional<CommandLine> parse(const CommandSpec& spec, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), {"qft", "sub"});
  return parse_command_line(spec, static_cast<int>(arguments.size()), arguments.data(), 2);
}

TEST(CommandLine, TellsRunFileOverridesAndOptionsApart) {
  const auto line = parse(ranks_spec(), {"--ranks", "16", "a=b.yaml", "run.yaml", "output_dir=/x/y", "prompt=a b=c",
                                         "max_steps=-1", "--json", "--log-level", "debug"});
  ASSERT_TRUE(line);
  EXPECT_EQ(line->run_file, "run.yaml");
  EXPECT_EQ(line->overrides, (std::vector<std::string>{"a=b.yaml", "output_dir=/x/y", "prompt=a b=c", "max_steps=-1"}));
  EXPECT_EQ(line->options["ranks"].as<int>(), 16);
  EXPECT_TRUE(line->json);
  EXPECT_EQ(line->log_level, log::Severity::debug);
}

TEST(CommandLine, TakesDashesForUnderscoresInOptions) {
  CommandSpec spec = ranks_spec();
  spec.options.add_options()("sweep_index", boost::program_options::value<int>(), "");
  for (const std::vector<const char*>& typed :
       {std::vector<const char*>{"--sweep-index", "3"}, {"--sweep-index=3"}, {"--sweep_index", "3"}}) {
    std::vector<const char*> all{"run.yaml"};
    all.insert(all.end(), typed.begin(), typed.end());
    EXPECT_EQ(parse(spec, all)->options["sweep_index"].as<int>(), 3);
  }
}

TEST(CommandLine, TakesRunFilesWithASignInTheFolder) {
  const auto line = parse(ranks_spec(), {"/runs/lr=1e-4/run.yaml"});
  EXPECT_EQ(line->run_file, "/runs/lr=1e-4/run.yaml");
}

TEST(CommandLine, TakesWordsWhereTheProgramHasSome) {
  CommandSpec spec{.name = "qft-ckpt", .summary = "Looks into checkpoints.", .words = "CHECKPOINT...", .min_words = 2};
  const auto line = parse(spec, {"diff", "lr=1/checkpoint-5", "b"});
  EXPECT_EQ(line->words, (std::vector<std::string>{"diff", "lr=1/checkpoint-5", "b"}));
  EXPECT_CONTAINS(error_of([&] { parse(spec, {"diff"}); }), "expected at least 2 of CHECKPOINT...");
  EXPECT_CONTAINS(error_of([&] { parse(spec, {"diff", "a", "--json"}); }), "unknown option '--json'");
}

TEST(CommandLine, TakesAFolderForItsAdapterOrModel) {
  TempFolder folder;
  folder.write("tuned/adapter_config.json", "{}");
  folder.write("tuned/config.json", "{}");
  folder.write("base/config.json", "{}");
  folder.write("data/a.txt", "");
  CommandSpec spec{
      .name = "qft chat", .summary = "Talks.", .run_file = CommandSpec::RunFile::required, .purpose = Purpose::generate};
  const std::string tuned = folder.path() + "/tuned", base = folder.path() + "/base", data = folder.path() + "/data";
  EXPECT_EQ(parse(spec, {tuned.c_str(), base.c_str()})->overrides,
            (std::vector<std::string>{"adapter_name_or_path=[\"" + tuned + "\"]", "model_name_or_path=" + base}));
  EXPECT_EQ(parse(spec, {tuned.c_str(), tuned.c_str(), "top_k=1"})->overrides,
            (std::vector<std::string>{"adapter_name_or_path=[\"" + tuned + "\",\"" + tuned + "\"]", "top_k=1"}));
  EXPECT_CONTAINS(error_of([&] { parse(spec, {base.c_str(), base.c_str()}); }), "are both models");
  spec.purpose = Purpose::eval;
  const std::string adapter = "adapter_name_or_path=[\"" + tuned + "\"]";
  EXPECT_EQ(parse(spec, {tuned.c_str()})->overrides,
            (std::vector<std::string>{adapter, "load_data_args=true", "output_dir=" + tuned + "-eval"}));
  EXPECT_EQ(parse(spec, {tuned.c_str(), "dataset=d", "output_dir=o"})->overrides,
            (std::vector<std::string>{adapter, "dataset=d", "output_dir=o"}));
  EXPECT_EQ(parse(spec, {tuned.c_str(), "run.yaml"})->overrides, (std::vector<std::string>{adapter}));
  spec.purpose = Purpose::export_model;
  EXPECT_EQ(parse(spec, {tuned.c_str()})->overrides, (std::vector<std::string>{adapter, "export_dir=" + tuned + "-merged"}));
  folder.write("out/run.json", "{}");
  EXPECT_CONTAINS(error_of([&] { parse(ranks_spec(), {(folder.path() + "/out").c_str()}); }), "give its run.json to repeat it");
  EXPECT_CONTAINS(error_of([&] { parse(spec, {data.c_str()}); }), "holds no adapter (adapter_config.json) and no model");
  EXPECT_CONTAINS(error_of([&] { parse(ranks_spec(), {tuned.c_str()}); }), "unexpected argument");
}

TEST(CommandLine, ExplainsMistakes) {
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {}); }), "the run file (.yaml, .yml or .json) is missing");
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {"run.yaml", "stray"}); }), "unexpected argument 'stray'");
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {"run.yaml", "other.yaml"}); }),
                  "there are two run files, run.yaml and other.yaml");
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {"run.yaml", "--rank", "4"}); }),
                  "--rank: there is no such option or key: did you mean 'ranks'?");
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {"run.yaml", "--ranks", "many"}); }), "see qft train --help");
  EXPECT_CONTAINS(error_of([] { parse(ranks_spec(), {"run.yaml", "--ranks"}); }), "ranks");
  EXPECT_THROW(parse(ranks_spec(), {"run.yaml", "--log-level", "loud"}), ConfigError);
}

TEST(CommandLine, PrintsHelpAndVersion) {
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse(ranks_spec(), {"--help"}));
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_CONTAINS(help, "usage: qft train [RUN.yaml] [key=value | --key value ...] [options]");
  EXPECT_CONTAINS(help, "--ranks");
  EXPECT_CONTAINS(help, "lora_rank");
  EXPECT_EQ(help.find("--arguments"), std::string::npos);
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse(ranks_spec(), {"--version"}));
  EXPECT_CONTAINS(testing::internal::GetCapturedStdout(), "qft train 0.");
}

TEST(CommandLine, LoadsTheConfiguration) {
  TempFolder folder;
  const std::string file = folder.write("run.yaml", "lora_rank: 4\n");
  EXPECT_EQ(parse(ranks_spec(), {file.c_str(), "lora_alpha=5"})->load(Purpose::any).finetuning.lora_alpha, 5);
  CommandSpec optional = ranks_spec();
  optional.run_file = CommandSpec::RunFile::optional;
  EXPECT_EQ(parse(optional, {"lora_rank=3"})->load(Purpose::check).finetuning.lora_rank, 3);
}

}  // namespace
}  // namespace qft::config
