// What a rank cannot see of its MPI launcher without looking: which process it is, and where its output goes.
#pragma once

#include <optional>
#include <string>

namespace qft {

/// The process id of the launcher that this process descends from on this node: mpirun, or its daemon. Nothing where there is
/// none (srun's is no ancestor that tells anything).
std::optional<int> launcher_process();

/// How many processes a launcher started, by a variable of the environment.
struct LaunchedProcesses {
  std::string variable;
  int count = 0;
};
/// The first variable of a launcher that names more than one process; nothing where none does.
std::optional<LaunchedProcesses> launched_processes();

/// Whether this is the first process of its job by the launchers' variables, or the only one. For what is printed before MPI
/// starts.
bool is_first_process();

/// Where something can be drawn for the person who started the program: stderr where that is a terminal; under mpirun, which
/// gives its ranks pipes, mpirun's own stderr where that is one, as long as it runs in the foreground. Else empty.
std::string drawing_terminal();

}  // namespace qft
