// The frame of a program that is one process, and where a program lies.
#pragma once

#include <filesystem>
#include <functional>

namespace qft {

/// Returns body()'s exit code. What it throws goes to stderr as "error: message", and the exit code is the error's own, or
/// kExitFailed.
int run_program(const std::function<int()>& body);

/// The folder of the running program; empty where the system does not say.
std::filesystem::path program_folder();

}  // namespace qft
