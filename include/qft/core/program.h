// The frame of a program that is one process.
#pragma once

#include <functional>

namespace qft {

/// Returns body()'s exit code. What it throws goes to stderr as "error: message", and the exit code is the error's own, or
/// kExitFailed.
int run_program(const std::function<int()>& body);

}  // namespace qft
