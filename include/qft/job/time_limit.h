// Decides when a run must stop: max_hours of the run file, and the job's end in the batch system.
#pragma once

#include <optional>

namespace qft::job {

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
