// The frame of a program that is one process, and where a program lies.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>
#include <vector>

namespace qft {

/// Ignores SIGPIPE and SIGXFSZ: a write that fails for a closed pipe or a limit of file sizes (ulimit -f) is an ordinary error,
/// and not the end of a run. Call first in main().
void take_write_errors();

/// Returns body()'s exit code. What it throws goes to stderr as "error: message", and the exit code is the error's own, or
/// kExitFailed.
int run_program(const std::function<int()>& body);

/// Ends the program with what it has printed and with what std::at_quick_exit() was given. Static objects stay as they are:
/// LibTorch's take 65 ms to destroy, a quarter of a short program. Where a sanitizer looks for leaks, it is a normal end.
[[noreturn]] void end_program(int code);

/// The folder of the running program; empty where the system does not say.
std::filesystem::path program_folder();

/// The folders of `kind` ("templates", "machines"), the first of which counts: the environment's `variable`, if it is set, and
/// share/qft/configs/<kind> beside the folder of the running program.
std::vector<std::filesystem::path> config_folders(const char* variable, std::string_view kind);

}  // namespace qft
