// qft-pack: encodes datasets into a pack file, in parallel under mpirun. Further commands work on packs.
#include "qft/config/reference.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/program.h"
#include "qft/dialects/dialects.h"
#include "qft/job/run_main.h"

#include <algorithm>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"

namespace qft::pack_tool {
namespace {

const Command* const kCommands[] = {&kCheck, &kInspect, &kVerify, &kExport, &kHead, &kMerge};

/// Returns the command: the first argument that is not an option. Without a command, builds a pack.
const Command& find_command(const std::vector<std::string>& arguments) {
  const auto word = std::find_if(arguments.begin(), arguments.end(), [](const std::string& a) { return !a.starts_with('-'); });
  for (const Command* command : kCommands)
    if (word != arguments.end() && *word == command->name) return *command;
  return kBuild;
}

std::optional<config::CommandLine> parse(const Command& command, std::vector<std::string> arguments) {
  const auto word = std::find(arguments.begin(), arguments.end(), command.name);
  if (word != arguments.end()) arguments.erase(word);
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return config::parse_command_line(command.spec(), static_cast<int>(argv.size()), argv.data(), 0, dialects::all());
}

config::ProgramSpec describe_program() {
  config::ProgramSpec program{
      "qft-pack", "encodes datasets into a pack, the file that qft trains on", {kBuild.spec()}, &dialects::all()};
  for (const Command* command : kCommands) program.commands.push_back(command->spec());
  return program;
}

bool asks_for_text(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const std::string& a) { return a == "--help" || a == "-h" || a == "--version"; });
}

/// `qft-pack help TOPIC...`; without a topic, prints --help and the list of topics.
int print_topics(std::span<const std::string> topics) {
  if (!is_first_process()) return kExitOk;
  const config::ProgramSpec program = describe_program();
  if (topics.empty()) parse(kBuild, {"--help"});
  std::cout << (topics.empty() ? "\nqft-pack help TOPIC prints:\n" + config::list_topics(program)
                               : config::help_on(topics, program));
  return kExitOk;
}

int run_alone(const Command& command, const std::vector<std::string>& arguments) {
  return run_program([&] {
    const auto line = parse(command, arguments);
    return line ? command.run(*line) : static_cast<int>(kExitOk);
  });
}

}  // namespace

std::string command_names() {
  std::string names;
  for (const Command* command : kCommands) names += (names.empty() ? "" : ", ") + std::string(command->name);
  return names;
}

config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words) {
  config::CommandSpec spec;
  spec.name = "qft-pack" + (command.empty() ? "" : " " + command);
  spec.summary = summary;
  spec.words = words;
  spec.machine_readable = true;
  return spec;
}

std::string output_of(const config::CommandLine& line, const char* command) {
  if (!line.options.count("output"))
    fail_config("{}: --output is missing: name the pack to write, for instance --output train.h5", command);
  return line.options["output"].as<std::string>();
}

}  // namespace qft::pack_tool

int main(int argc, char** argv) {
  using namespace qft;  // NOLINT: a program
  ignore_write_signals();
  log::init({});
  const std::vector<std::string> given(argv + std::min(1, argc), argv + argc);
  if (!given.empty() && given.front() == "help")
    quick_exit_program(run_program([&] { return pack_tool::print_topics(std::span(given).subspan(1)); }));
  const pack_tool::Command& command = pack_tool::find_command(given);
  if (!command.run && pack_tool::asks_for_text(given))
    quick_exit_program(run_program([&] {
      if (is_first_process()) pack_tool::parse(command, given);  // prints the text
      return static_cast<int>(kExitOk);
    }));
  if (command.run) quick_exit_program(pack_tool::run_alone(command, given));
  quick_exit_program(job::run_main(argc, argv, [&](comm::Session& session, std::span<const std::string> arguments) -> int {
    const std::vector<std::string> mine(arguments.begin(), arguments.end());
    const auto line = pack_tool::parse(command, mine);
    return line ? command.run_on_ranks(session, *line) : static_cast<int>(kExitOk);
  }));
}
