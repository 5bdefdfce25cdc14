// Requests from outside to stop: SLURM's and PBS's warning before the wall time, or a person's.
#pragma once

namespace qft::train {

/// Catches SIGUSR1 and SIGTERM for the process. Call before MPI starts, so that no signal is lost.
void catch_stop_signals();
/// The signal that has asked this process to stop, or 0.
int stop_requested();

}  // namespace qft::train
