#include "qft/train/time_limit.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "qft/core/error.h"

namespace qft::train {
namespace {

constexpr double kLeastMargin = 60.0;

std::optional<double> seconds_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::string_view value(text);
  double seconds = 0.0;
  const auto parsed = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || seconds < 0)
    fail_config("the environment's {} is '{}', not a number of seconds: correct or unset it", variable, value);
  return seconds;
}

}  // namespace

TimeLimit::TimeLimit(double max_hours, std::optional<double> job_end, double now) : job_end_(job_end) {
  if (max_hours > 0) stop_at_ = now + 3600.0 * max_hours;
}

void TimeLimit::observe_step(double seconds) { slowest_step_ = std::max(slowest_step_, seconds); }
void TimeLimit::observe_save(double seconds) { slowest_save_ = std::max(slowest_save_, seconds); }

double TimeLimit::margin() const { return std::max(kLeastMargin, 3.0 * (slowest_step_ + slowest_save_)); }

bool TimeLimit::reached(double now) const {
  return (stop_at_ && now >= *stop_at_) || (job_end_ && now >= *job_end_ - margin());
}

std::optional<double> job_end(double now) {
  if (const auto end = seconds_in("SLURM_JOB_END_TIME")) return end;
  if (const auto walltime = seconds_in("PBS_WALLTIME")) return now + *walltime;
  return std::nullopt;
}

std::string batch_job() {
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID"})
    if (const char* job = std::getenv(variable); job != nullptr && *job != '\0') return job;
  return {};
}

}  // namespace qft::train
