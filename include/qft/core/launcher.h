// Finds the MPI launcher of this process and the terminal that shows the launcher's output.
#pragma once

#include <optional>
#include <string>

namespace qft {

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
