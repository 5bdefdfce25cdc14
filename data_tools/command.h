// The subcommands of qft-pack. Each has its own file; qft_pack.cpp has the table.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/command_line.h"

namespace qft::pack_tool {

struct Command {
  const char* name;
  config::CommandSpec (*spec)();
  // One of the two is set: commands that only read run in one process without MPI.
  int (*run)(const config::CommandLine& line) = nullptr;
  int (*run_on_ranks)(comm::Session& session, const config::CommandLine& line) = nullptr;
};

/// Returns a spec with the parts that all commands share.
config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words);
/// Returns --output. Throws ConfigError if it is missing.
std::string output_of(const config::CommandLine& line, const char* command);

/// Returns "inspect, verify, ..." for messages.
std::string command_names();

extern const Command kBuild, kCheck, kInspect, kVerify, kExport, kHead, kMerge;

}  // namespace qft::pack_tool
