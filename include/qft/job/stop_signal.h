// Decides when a run must stop: on request (a person's, or the warning of SLURM or PBS before the wall time ends), by max_hours,
// or before the job's end in the batch system.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/error.h"

#include <functional>
#include <optional>

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

/// All times are Unix seconds.
class TimeLimit {
 public:
  /// `max_hours` counts from `now`; 0: no limit. `job_end`: the time at which the batch system kills the job.
  TimeLimit(double max_hours, std::optional<double> job_end, double now);

  /// Records the duration of a step or save. The slowest ones decide how early a job must stop.
  void observe_step(double seconds);
  void observe_save(double seconds);

  /// True once max_hours have passed, or once the time left before the job's end is below margin().
  bool reached(double now) const;
  /// Returns the seconds before the job's end at which training stops: three times the slowest step plus save, at least a minute.
  double margin() const;

 private:
  std::optional<double> stop_at_, job_end_;
  double slowest_step_ = 0.0, slowest_save_ = 0.0;
};

}  // namespace qft::job
