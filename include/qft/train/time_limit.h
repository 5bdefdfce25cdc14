// What the batch system says, and when a run has to stop by itself: max_hours of the run file, and the end that the batch system has set for the job.
#pragma once

#include <optional>
#include <string>

namespace qft::train {

/// Seconds are Unix time.
class TimeLimit {
 public:
  /// `max_hours` counts from `now`; 0 is no limit. `job_end`: when the batch system kills the job.
  TimeLimit(double max_hours, std::optional<double> job_end, double now);

  /// How long the last step or save took: the slowest of each decides how early a job must stop.
  void observe_step(double seconds);
  void observe_save(double seconds);

  /// True once max_hours have passed, or the job's end is closer than a checkpoint needs.
  bool reached(double now) const;
  /// Seconds before the job's end at which training stops: three times the slowest step and save, at least a minute.
  double margin() const;

 private:
  std::optional<double> stop_at_, job_end_;
  double slowest_step_ = 0.0, slowest_save_ = 0.0;
};

/// The end of this job in Unix time: SLURM_JOB_END_TIME (SLURM 22.05 and later), or the start of the process (`now`)
/// plus PBS_WALLTIME (seconds, Torque). Nothing where neither is set. Throws ConfigError where one is no number.
std::optional<double> job_end(double now);

/// The batch job's name, the same when it is put back into the queue (SLURM_JOB_ID, PBS_JOBID); empty outside of one.
std::string batch_job();

}  // namespace qft::train
