// The subcommands of qft-ckpt: a file each, and one table in qft_ckpt.cpp. They run in one process and start no MPI.
#pragma once

#include "qft/config/command_line.h"
#include "qft/core/error.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::ckpt_tool {

struct Command {
  const char* name;
  const char* purpose;  // a few words, for the list of commands
  config::CommandSpec (*spec)();
  int (*run)(const config::CommandLine& line);
};

/// A spec with what all commands share.
config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words,
                              std::size_t least_words);

/// --output, which must have been given: `what` says in the message what it names.
std::filesystem::path output_of(const config::CommandLine& line, const std::string& command, const std::string& what);

/// An output_dir stands for its checkpoints, any other directory for itself.
std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words);

extern const Command kInspect, kVerify, kDiff, kMerge, kExpand, kAddTokens, kConvert, kReshard, kGc;

}  // namespace qft::ckpt_tool
