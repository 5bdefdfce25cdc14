#include "qft/job/time_limit.h"

#include <algorithm>

namespace qft::job {
namespace {

constexpr double kLeastMargin = 60.0;

}  // namespace

TimeLimit::TimeLimit(double max_hours, std::optional<double> job_end, double now) : job_end_(job_end) {
  if (max_hours > 0) stop_at_ = now + 3600.0 * max_hours;
}

void TimeLimit::observe_step(double seconds) {
  slowest_step_ = std::max(slowest_step_, seconds);
}
void TimeLimit::observe_save(double seconds) {
  slowest_save_ = std::max(slowest_save_, seconds);
}

double TimeLimit::margin() const {
  return std::max(kLeastMargin, 3.0 * (slowest_step_ + slowest_save_));
}

bool TimeLimit::reached(double now) const {
  return (stop_at_ && now >= *stop_at_) || (job_end_ && now >= *job_end_ - margin());
}

}  // namespace qft::job
