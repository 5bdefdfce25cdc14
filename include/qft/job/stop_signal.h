// Handles requests to stop: a person's, or the warning of SLURM or PBS before the wall time ends.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/error.h"

#include <functional>

namespace qft::job {

/// Catches SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU, and SIGINT and SIGHUP unless they are ignored; a second SIGINT ends the
/// process. Before training_has_begun() a request ends the process within ten seconds, with exit code 75. Call before MPI starts,
/// so that no signal is lost.
void catch_stop_signals();
/// From now on there is something to save: a request ends the run at its next safe point.
void training_has_begun();
/// The run is over and another one follows in this process: requests act as before training_has_begun().
void training_has_ended();
/// Returns the signal that asked this process to stop, or 0.
int stop_requested();

/// A request to stop before anything was trained; exit code 75.
class Stopped : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return kExitRequeue; }
};
inline constexpr const char* kNothingTrained =
    "stopped on request before the first step: nothing was trained; submit the job again";
/// If any rank was asked to stop, calls `leave` and throws Stopped, on all ranks. Collective.
void stop_before_training(comm::Communicator& comm, const std::function<void()>& leave = {});

}  // namespace qft::job
