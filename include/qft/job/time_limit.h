// When a run has to stop by itself: max_hours of the run file, and the end that the batch system has set for the job.
#pragma once

#include <optional>

namespace qft::job {

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

}  // namespace qft::job
