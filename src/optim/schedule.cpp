#include "qft/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace qft::optim {
namespace {

/// Returns the rate of warm-up update `step`, relative to the peak.
double warmed_up(const Schedule& s, std::int64_t step) {
  if (s.log_warmup)
    return std::log(static_cast<double>(step + 1)) / std::log(static_cast<double>(std::max<std::int64_t>(2, s.warmup_steps)));
  return static_cast<double>(step) / static_cast<double>(s.warmup_steps);
}

double half_cosine(double angle) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * angle));
}

double from_floor(double factor, double floor) {
  return std::max(0.0, factor * (1.0 - floor) + floor);
}

/// Returns the rate after the warm-up, relative to the peak; `progress` is 1 at the last step.
double cosine(const Schedule& s, double progress) {
  if (s.kind != ScheduleKind::cosine_with_restarts) return from_floor(half_cosine(s.num_cycles * 2.0 * progress), s.min_lr_rate);
  return progress >= 1.0 ? 0.0 : std::max(0.0, half_cosine(std::fmod(s.num_cycles * progress, 1.0)));
}

double polynomial(const Schedule& s, std::int64_t step) {
  if (step > s.total_steps) return s.lr_end / s.peak;
  const double decay_steps = static_cast<double>(std::max<std::int64_t>(1, s.total_steps - s.warmup_steps));
  const double left = 1.0 - static_cast<double>(step - s.warmup_steps) / decay_steps;
  return ((s.peak - s.lr_end) * std::pow(left, s.power) + s.lr_end) / s.peak;
}

double inverse_sqrt(const Schedule& s, std::int64_t step) {
  const double warmup = static_cast<double>(s.warmup_steps);
  const double timescale = s.timescale > 0.0 ? s.timescale : s.warmup_steps > 0 ? warmup : 10'000.0;
  return 1.0 / std::sqrt((static_cast<double>(step) + timescale - warmup) / timescale);
}

/// The warm-up runs one step ahead of the other schedules', so no step has a rate of 0.
double cosine_warmup_with_min_lr(const Schedule& s, std::int64_t step) {
  const double at = static_cast<double>(step), warmup = static_cast<double>(s.warmup_steps);
  if (at < warmup)
    return s.warmup_lr_rate ? *s.warmup_lr_rate + (1.0 - *s.warmup_lr_rate) * at / std::max(1.0, warmup - 1.0)
                            : (at + 1.0) / std::max(1.0, warmup);
  return cosine(s, (at - warmup + 1.0) / std::max(1.0, static_cast<double>(s.total_steps) - warmup));
}

double warmup_stable_decay(const Schedule& s, std::int64_t step) {
  if (step < s.warmup_steps) {
    const double progress = warmed_up(s, step);
    const double factor = s.warmup_type == Ramp::linear   ? progress
                          : s.warmup_type == Ramp::cosine ? 0.5 * (1.0 - std::cos(std::numbers::pi * progress))
                                                          : 1.0 - std::sqrt(1.0 - progress);
    return from_floor(factor, s.min_lr_ratio);
  }
  const std::int64_t decaying = step - s.warmup_steps - s.num_stable_steps;
  if (decaying < 0) return 1.0;
  if (decaying >= s.num_decay_steps) return s.min_lr_ratio;
  const double progress = static_cast<double>(decaying) / static_cast<double>(s.num_decay_steps);
  const double factor = s.decay_type == Ramp::linear   ? 1.0 - progress
                        : s.decay_type == Ramp::cosine ? half_cosine(s.num_cycles * 2.0 * progress)
                                                       : 1.0 - std::sqrt(progress);
  return from_floor(factor, s.min_lr_ratio);
}

/// Returns the rate relative to the peak.
double factor(const Schedule& s, std::int64_t step) {
  if (s.kind == ScheduleKind::constant) return 1.0;
  if (s.kind == ScheduleKind::cosine_warmup_with_min_lr) return cosine_warmup_with_min_lr(s, step);
  if (s.kind == ScheduleKind::warmup_stable_decay) return warmup_stable_decay(s, step);
  if (step < s.warmup_steps) return warmed_up(s, step);
  const double rest = static_cast<double>(std::max<std::int64_t>(1, s.total_steps - s.warmup_steps));
  switch (s.kind) {
    case ScheduleKind::linear:
      return std::max(0.0, static_cast<double>(s.total_steps - step) / rest);
    case ScheduleKind::polynomial:
      return polynomial(s, step);
    case ScheduleKind::inverse_sqrt:
      return inverse_sqrt(s, step);
    case ScheduleKind::constant_with_warmup:
      return 1.0;
    default:
      return cosine(s, static_cast<double>(step - s.warmup_steps) / rest);
  }
}

}  // namespace

double Schedule::at(std::int64_t step) const {
  return peak * factor(*this, step);
}

}  // namespace qft::optim
