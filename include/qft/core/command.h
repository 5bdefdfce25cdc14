// Asking another program: the batch system's own tools.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace qft {

/// What a program said.
struct Answer {
  std::string text;   ///< its standard output
  std::string error;  ///< why `text` must not be used: not found, a status other than 0, too late; empty: it may
  bool ok() const { return error.empty(); }
};

/// Runs a program of the PATH, without a shell and without input, and waits for its end for `patience` at most: one that
/// hangs is killed with what it has started. Never throws because of what the program does.
Answer ask_program(const std::vector<std::string>& command, std::chrono::milliseconds patience);

}  // namespace qft
