#include "qft/optim/schedule.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace qft::optim {
namespace {

constexpr std::array<std::pair<const char*, ScheduleKind>, 4> kNames{{
    {"constant", ScheduleKind::constant},
    {"constant_with_warmup", ScheduleKind::constant_with_warmup},
    {"linear", ScheduleKind::linear},
    {"cosine", ScheduleKind::cosine},
}};

/// The part of the peak that update number `step` of the warm-up has.
double warmed_up(const Schedule& s, std::int64_t step) {
  if (s.log_warmup)
    return std::log(static_cast<double>(step + 1)) / std::log(static_cast<double>(std::max<std::int64_t>(2, s.warmup_steps)));
  return static_cast<double>(step) / static_cast<double>(s.warmup_steps);
}

}  // namespace

ScheduleKind parse_schedule(const std::string& name) {
  std::string known;
  for (const auto& [word, kind] : kNames) {
    if (name == word) return kind;
    known += known.empty() ? word : std::string(", ") + word;
  }
  fail_config("lr_scheduler_type '{}' is not implemented: use one of {}", name, known);
}

double Schedule::at(std::int64_t step) const {
  if (kind == ScheduleKind::constant) return peak;
  if (step < warmup_steps) return peak * warmed_up(*this, step);
  if (kind == ScheduleKind::constant_with_warmup) return peak;
  const double rest = static_cast<double>(std::max<std::int64_t>(1, total_steps - warmup_steps));
  if (kind == ScheduleKind::linear) return peak * std::max(0.0, static_cast<double>(total_steps - step) / rest);
  const double progress = static_cast<double>(step - warmup_steps) / rest;
  return peak * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace qft::optim
