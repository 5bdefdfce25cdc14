// The subcommands of qft-ckpt. Each has its own file; qft_ckpt.cpp has the table. They run in one process without MPI.
#pragma once

#include "qft/config/command_line.h"
#include "qft/core/error.h"

#include <filesystem>
#include <string>
#include <vector>

namespace qft::ckpt_tool {

struct Command {
  const char* name;
  const char* purpose;  // a short description for the list of commands
  config::CommandSpec (*spec)();
  int (*run)(const config::CommandLine& line);
};

/// Returns a spec with the parts that all commands share.
config::CommandSpec make_spec(const std::string& command, const std::string& summary, const std::string& words,
                              std::size_t min_words);

/// Returns --output. Throws ConfigError if it is missing; `what` describes the option in the message.
std::filesystem::path output_of(const config::CommandLine& line, const std::string& command, const std::string& what);

/// Replaces each output_dir by its checkpoints. Keeps other directories.
std::vector<std::filesystem::path> checkpoints_of(const std::vector<std::string>& words);

extern const Command kInspect, kVerify, kDiff, kMerge, kExpand, kAddTokens, kConvert, kReshard, kGc;

}  // namespace qft::ckpt_tool
