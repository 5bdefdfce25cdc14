// Runs other programs and reads their output, such as the batch system's tools.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace qft {

/// The output of a program.
struct CommandOutput {
  std::string text;   ///< standard output
  std::string error;  ///< why `text` must not be used (not found, non-zero status, timeout); empty on success
  bool ok() const { return error.empty(); }
};

/// Runs a program found on PATH, without shell or input, and waits at most `timeout` for its end. On a timeout the program
/// and its children are killed. Never throws because of the program's behaviour.
CommandOutput run_command(const std::vector<std::string>& command, std::chrono::milliseconds timeout);

}  // namespace qft
