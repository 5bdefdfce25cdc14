// Helpers for the main() of a one-process program, the program's location, and the MPI launcher of this process with the terminal
// that shows the launcher's output.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qft {

/// Ignores SIGPIPE and SIGXFSZ, so that a write to a closed pipe or beyond the file size limit (ulimit -f) is an ordinary error
/// and does not kill the run. Call this first in main().
void ignore_write_signals();

/// Returns body()'s exit code. An exception goes to stderr as "error: message"; the exit code is then the Error's, or
/// kExitFailed for other exceptions.
int run_program(const std::function<int()>& body);

/// Ends the program after it has flushed its output and run the std::at_quick_exit() functions. Static objects are not destroyed:
/// LibTorch's take 65 ms, a quarter of a short program. Under a sanitizer, which looks for leaks, it exits normally.
[[noreturn]] void quick_exit_program(int code);

/// Returns the folder of the running program; empty if the system does not tell.
std::filesystem::path program_folder();

/// Returns the folders for `kind` ("templates", "machines"), the preferred first: the environment's `variable` if set, then
/// share/qft/configs/<kind> beside the folder of the running program.
std::vector<std::filesystem::path> config_folders(const char* variable, std::string_view kind);

/// Returns the process id of this process' launcher on this node (mpirun, or its daemon); nullopt if no ancestor is one. srun's
/// processes are not recognised.
std::optional<int> launcher_process();

/// The number of processes that a launcher started, according to an environment variable.
struct LaunchedProcesses {
  std::string variable;
  int count = 0;
};
/// Returns the first launcher variable that names more than one process; nullopt if none does.
std::optional<LaunchedProcesses> launched_processes();

/// True if this is the first or only process of its job according to the launchers' variables. For output before MPI starts.
bool is_first_process();

/// Returns the path of a terminal on which to draw for the person who started the program: stderr if it is a terminal; under
/// mpirun, which gives its ranks pipes, mpirun's stderr if that is a terminal and mpirun runs in the foreground. Otherwise "".
std::string progress_terminal();

}  // namespace qft
