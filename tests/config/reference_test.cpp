#include "qft/config/reference.h"

#include <algorithm>
#include <regex>
#include <sstream>

#include "support/temp_files.h"
#include <boost/program_options/value_semantic.hpp>

namespace qft::config {
namespace {

namespace po = boost::program_options;

CommandSpec command(const char* name, CommandSpec::RunFile run_file, Purpose purpose = Purpose::any) {
  CommandSpec spec;
  spec.name = name;
  spec.summary = ".reads 'a' file\\n";
  spec.run_file = run_file;
  spec.purpose = purpose;
  return spec;
}

ProgramSpec tool() {
  ProgramSpec program{"tool", "does things", {command("tool train", CommandSpec::RunFile::required, Purpose::train)}};
  program.commands.push_back(command("tool list", CommandSpec::RunFile::none));
  program.commands[1].options.add_options()("size", po::value<int>(), "its size")("all,a", "list all");
  program.commands[1].choices["size"] = {"3", "$(touch /tmp/x)", "a b", "5"};
  return program;
}

std::string help(std::vector<std::string> topics, const ProgramSpec& program = tool()) {
  return help_on(topics, program);
}

TEST(Reference, ManPageEscapesTextThatTroffWouldInterpret) {
  const std::string page = man_page(tool());
  EXPECT_CONTAINS(page, ".TH TOOL 1 ");
  EXPECT_CONTAINS(page, ".SS tool list\n\\&.reads \\(aqa\\(aq file\\en\n");
  EXPECT_CONTAINS(page, ".TP\n\\fB\\-\\-size arg\\fR\nits size\n");
  EXPECT_CONTAINS(page,
                  ".TP\n\\fBlora_rank\\fR\nrank of the LoRA matrices\n.br\nValue: an integer of at least 1\n.br\nDefault: 8\n");
  EXPECT_CONTAINS(page, "\\fB75\\fR") << "a program that trains";
}

TEST(Reference, ManPageOfAProgramWithoutRunFilesHasNoKeys) {
  const std::string page = man_page({"tool", "does things", {command("tool list", CommandSpec::RunFile::none)}});
  EXPECT_EQ(page.find("lora_rank"), std::string::npos);
  EXPECT_EQ(page.find("\\fB75\\fR"), std::string::npos);
}

TEST(Reference, CompletionHoldsNoWordThatBashWouldExpand) {
  const std::string script = bash_completion(tool());
  EXPECT_CONTAINS(script, R"([[ $key != --size ]] || values="3 5" ;;)");
  EXPECT_CONTAINS(script, R"(list) options="--size --all --help --version --log-level" switches="--all -a --help -h --version")");
  EXPECT_CONTAINS(script, R"(words="train list help")");
  EXPECT_CONTAINS(script, "complete -o default -F _tool tool\n");
}

TEST(Reference, CompletionOffersOnlyImplementedValues) {
  const std::string script = bash_completion(tool());
  EXPECT_CONTAINS(script, R"(pref_loss) values="sigmoid hinge ipo orpo simpo cpo" ;;)");
  EXPECT_EQ(script.find("kto_pair"), std::string::npos);
}

TEST(Reference, KeysPageHasARowOfFiveCellsForEachKey) {
  const std::string page = keys_page();
  std::istringstream lines(page);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const auto bars = std::regex_replace(line, std::regex(R"(\\\|)"), "");
    EXPECT_EQ(std::ranges::count(bars, '|'), 6) << line;
    EXPECT_FALSE(line.ends_with("|  |")) << "no program reads the key: " << line;
    ++rows;
  }
  EXPECT_GT(rows, 200);
  EXPECT_CONTAINS(page, "\n| `lora_rank` | `8` | an integer of at least 1 | rank of the LoRA matrices | train, plan, check |\n");
  EXPECT_CONTAINS(page, "not implemented: kto_pair");
}

TEST(Reference, HelpFindsCommandsTopicsAndKeys) {
  EXPECT_EQ(help({"man"}), man_page(tool()));
  EXPECT_EQ(help({"bash", "man"}), bash_completion(tool()) + man_page(tool()));
  EXPECT_CONTAINS(help({"list"}), "usage: tool list [options]\n");
  EXPECT_CONTAINS(error_of([] { help({"maan"}); }), "tool help: there is no topic 'maan': did you mean 'man'?");
  EXPECT_CONTAINS(error_of([] { help({"lora_rank"}); }), "the topics are man, bash, train, list");
  EXPECT_CONTAINS(error_of([] { help({"keys"}); }), "there is no topic 'keys'");
  EXPECT_CONTAINS(error_of([] { help({""}); }), "there is no topic ''");
  ProgramSpec explains = tool();
  explains.dialects = &kOwnKeysOnly;
  EXPECT_EQ(help({"keys"}, explains), keys_page());
  EXPECT_CONTAINS(help({"lora_rank"}, explains), "lora_rank: rank of the LoRA matrices\n");
  EXPECT_CONTAINS(error_of([&] { help({"lora_rnak"}, explains); }), "did you mean 'lora_rank'?");
  EXPECT_EQ(list_topics(tool()).find("KEY"), std::string::npos);
  EXPECT_CONTAINS(list_topics(explains), "  KEY ");
}

}  // namespace
}  // namespace qft::config
