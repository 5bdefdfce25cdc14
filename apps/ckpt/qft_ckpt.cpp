// qft-ckpt: inspects, verifies and converts checkpoints. Needs no mpirun.
#include "qft/checkpoint/checkpoint.h"
#include "qft/config/reference.h"
#include "qft/core/log.h"
#include "qft/core/member.h"
#include "qft/core/program.h"
#include "qft/core/version.h"

#include <algorithm>
#include <iostream>
#include <string_view>

#include "command.h"
#include <boost/program_options/variables_map.hpp>
#include <fmt/format.h>

namespace qft::ckpt_tool {
namespace {

const Command* const kCommands[] = {&kInspect, &kVerify, &kDiff, &kMerge, &kExpand, &kAddTokens, &kConvert, &kReshard, &kGc};

config::ProgramSpec describe_program() {
  config::ProgramSpec program{"qft-ckpt", "inspects, verifies and converts checkpoints", {}};
  for (const Command* command : kCommands) program.commands.push_back(command->spec());
  return program;
}

std::string usage() {
  std::string text = "usage: qft-ckpt COMMAND [options] DIR...\n\ncommands (qft-ckpt COMMAND --help for details)\n";
  for (const Command* command : kCommands) text += fmt::format("  {:<10} {}\n", command->name, command->purpose);
  return text +
         "\nDIR is a checkpoint, an adapter or a model directory; inspect, diff and convert also accept a file of tensors.\n"
         "\nqft-ckpt help TOPIC prints:\n" +
         config::list_topics(describe_program());
}

int run(std::vector<const char*> arguments) {
  if (arguments.empty()) fail_config("a command is missing\n{}", usage());
  for (const Command* command : kCommands) {
    const auto word = std::find(arguments.begin(), arguments.end(), std::string_view(command->name));
    if (word == arguments.end() || std::any_of(arguments.begin(), word, [](const char* a) { return *a != '-'; })) continue;
    arguments.erase(word);
    const auto line = config::parse_command_line(command->spec(), static_cast<int>(arguments.size()), arguments.data(), 0);
    if (!line) return kExitOk;
    follow_links(line->options.count("follow-links") > 0);
    return command->run(*line);
  }
  const std::string_view word = arguments.front();
  if (word == "help" && arguments.size() > 1) {
    std::cout << config::help_on(std::vector<std::string>(arguments.begin() + 1, arguments.end()), describe_program());
    return kExitOk;
  }
  if (word == "--help" || word == "-h" || word == "help") {
    std::cout << usage();
    return kExitOk;
  }
  if (word == "--version") {
    std::cout << "qft-ckpt " << version() << "\n";
    return kExitOk;
  }
  fail_config("there is no command '{}'\n{}", word, usage());
}

}  // namespace

config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words,
                              std::size_t min_words) {
  config::CommandSpec spec;
  spec.name = "qft-ckpt " + command;
  spec.summary = summary;
  spec.words = words;
  spec.min_words = min_words;
  spec.machine_readable = true;
  spec.options.add_options()("follow-links", "follow links that point out of a file's folder; only if you trust their creator");
  return spec;
}

std::filesystem::path output_of(const config::CommandLine& line, const std::string& command, const std::string& what) {
  if (!line.options.count("output")) fail_config("qft-ckpt {}: --output is missing: {}", command, what);
  return line.options["output"].as<std::string>();
}

std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words) {
  std::vector<std::filesystem::path> dirs;
  for (const std::string& word : words) {
    const auto candidates = checkpoint::list_checkpoints(word);
    for (const auto& candidate : candidates) dirs.push_back(candidate.dir);
    if (candidates.empty()) dirs.emplace_back(word);
  }
  return dirs;
}

}  // namespace qft::ckpt_tool

int main(int argc, char** argv) {
  qft::ignore_write_signals();
  qft::log::init({});
  return qft::run_program([&] { return qft::ckpt_tool::run({argv + std::min(1, argc), argv + argc}); });
}
