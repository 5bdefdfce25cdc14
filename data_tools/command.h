// The subcommands of qft-pack: a file each, and one table in qft_pack.cpp.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/command_line.h"

namespace qft::pack_tool {

struct Command {
  const char* name;
  config::CommandSpec (*spec)();
  // One of the two: commands that only read run in one process and start no MPI.
  int (*run)(const config::CommandLine& line) = nullptr;
  int (*run_on_ranks)(comm::Session& session, const config::CommandLine& line) = nullptr;
};

/// A spec with what all commands share.
config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words);
/// --output, which must have been given.
std::string output_of(const config::CommandLine& line, const char* command);

/// "inspect, verify, ...", for messages.
std::string command_names();

extern const Command kBuild, kCheck, kInspect, kVerify, kExport, kHead, kMerge;

}  // namespace qft::pack_tool
