// Requests from outside to stop: SLURM's and PBS's warning before the wall time, or a person's.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/error.h"

#include <functional>

namespace qft::job {

/// Catches SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU for the process, SIGINT and SIGHUP unless they are ignored; a second SIGINT ends
/// it. Before training_has_begun() a request ends the process after ten seconds at the latest, with exit code 75. Call before MPI
/// starts, so that no signal is lost.
void catch_stop_signals();
/// From now on a request ends the run at its next safe point: there is something to save.
void training_has_begun();
/// The run is over and another one follows in this process: as before training_has_begun().
void training_has_ended();
/// The signal that has asked this process to stop, or 0.
int stop_requested();

/// A request to stop that came before anything was trained; exit code 75.
class Stopped : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return kExitRequeue; }
};
inline constexpr const char* kNothingTrained =
    "stopped on request before the first step: nothing was trained; submit the job again";
/// Throws Stopped on all ranks if any of them is asked to stop, after `leave`. Collective.
void stop_before_training(comm::Communicator& comm, const std::function<void()>& leave = {});

}  // namespace qft::job
