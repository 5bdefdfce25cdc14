#include "qft/optim/schedule.h"

#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

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

using nlohmann::json;

struct Row {
  std::string_view name;
  ScheduleKind kind;
  std::vector<std::string_view> keywords = {};
};

/// The table of names, with the keywords that each accepts.
const std::vector<Row>& rows() {
  static const std::vector<Row> kRows = {
      {"linear", ScheduleKind::linear},
      {"cosine", ScheduleKind::cosine, {"num_cycles"}},
      {"cosine_with_restarts", ScheduleKind::cosine_with_restarts, {"num_cycles"}},
      {"polynomial", ScheduleKind::polynomial, {"lr_end", "power"}},
      {"constant", ScheduleKind::constant},
      {"constant_with_warmup", ScheduleKind::constant_with_warmup},
      {"inverse_sqrt", ScheduleKind::inverse_sqrt, {"timescale"}},
      {"cosine_with_min_lr", ScheduleKind::cosine_with_min_lr, {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr",
       ScheduleKind::cosine_warmup_with_min_lr,
       {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       ScheduleKind::warmup_stable_decay,
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"}},
  };
  return kRows;
}

const Row& row_of(const std::string& name) {
  std::vector<std::string_view> known;
  for (const Row& row : rows()) {
    if (row.name == name) return row;
    known.push_back(row.name);
  }
  fail_config("lr_scheduler_type '{}' is not implemented: use one of {}", name, fmt::join(known, ", "));
}

/// The given keywords, each read at most once.
class Keywords {
 public:
  Keywords(const Row& row, const json& given) : row_(row), given_(given.is_null() ? json::object() : given) {
    if (!given_.is_object()) fail_config("lr_scheduler_kwargs: expected a mapping, got {}", given_.dump());
    for (auto it = given_.begin(); it != given_.end(); ++it)
      if (std::find(row.keywords.begin(), row.keywords.end(), it.key()) == row.keywords.end())
        fail_config("lr_scheduler_kwargs: {} has no '{}': {}", row.name, it.key(),
                    row.keywords.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(row.keywords, ", ")));
  }

  bool has(const char* name) const { return given_.contains(name) && !given_[name].is_null(); }
  [[noreturn]] void reject(const char* name, std::string_view expected) const {
    fail_config("lr_scheduler_kwargs: {} of {}: expected {}, got {}", name, row_.name, expected,
                has(name) ? given_[name].dump() : "nothing");
  }
  void read(const char* name, double& to, double least) const {
    if (!has(name)) return;
    if (!given_[name].is_number() || given_[name].get<double>() < least)
      reject(name, fmt::format("a number of at least {}", least));
    to = given_[name].get<double>();
  }
  void read(const char* name, std::int64_t& to) const {
    if (!has(name)) return;
    if (!given_[name].is_number_integer() || given_[name].get<std::int64_t>() < 0) reject(name, "a number of steps");
    to = given_[name].get<std::int64_t>();
  }
  void read(const char* name, Ramp& to) const {
    static constexpr std::array<std::pair<std::string_view, Ramp>, 3> kRamps = {
        {{"linear", Ramp::linear}, {"cosine", Ramp::cosine}, {"1-sqrt", Ramp::one_minus_sqrt}}};
    if (!has(name)) return;
    for (const auto& [word, ramp] : kRamps)
      if (given_[name] == word) {
        to = ramp;
        return;
      }
    reject(name, "linear, cosine or 1-sqrt");
  }

 private:
  const Row& row_;
  json given_;
};

void read_floor(const Keywords& keywords, Schedule& s) {
  if (keywords.has("min_lr") == keywords.has("min_lr_rate"))
    keywords.reject("min_lr", "either min_lr, a learning rate, or min_lr_rate, a part of learning_rate");
  double rate = s.min_lr_rate * s.peak;
  keywords.read("min_lr", rate, 0.0);
  s.min_lr_rate = s.peak > 0.0 ? rate / s.peak : 0.0;
  keywords.read("min_lr_rate", s.min_lr_rate, 0.0);
}

}  // namespace

double Schedule::at(std::int64_t step) const {
  return peak * factor(*this, step);
}

Schedule make_schedule(const std::string& name, const json& kwargs, Schedule base) {
  const Row& row = row_of(name);
  const Keywords keywords(row, kwargs);
  Schedule s = base;
  s.kind = row.kind;
  if (s.kind == ScheduleKind::cosine_with_restarts) s.num_cycles = 1.0;
  keywords.read("num_cycles", s.num_cycles, 0.0);
  keywords.read("power", s.power, 0.0);
  keywords.read("timescale", s.timescale, 1.0);
  keywords.read("lr_end", s.lr_end, 0.0);
  if (s.kind == ScheduleKind::polynomial && s.peak <= s.lr_end)
    fail_config("lr_scheduler_kwargs: lr_end of polynomial is {}, but learning_rate is {}: it must be smaller", s.lr_end, s.peak);
  if (s.kind == ScheduleKind::cosine_with_min_lr || s.kind == ScheduleKind::cosine_warmup_with_min_lr) read_floor(keywords, s);
  if (keywords.has("warmup_lr_rate")) keywords.read("warmup_lr_rate", s.warmup_lr_rate.emplace(), 0.0);
  if (s.kind != ScheduleKind::warmup_stable_decay) return s;
  if (!keywords.has("num_decay_steps"))
    keywords.reject("num_decay_steps", "the steps in which the learning rate falls at the end");
  keywords.read("num_decay_steps", s.num_decay_steps);
  s.num_stable_steps = s.total_steps - s.warmup_steps - s.num_decay_steps;
  keywords.read("num_stable_steps", s.num_stable_steps);
  keywords.read("warmup_type", s.warmup_type);
  keywords.read("decay_type", s.decay_type);
  keywords.read("min_lr_ratio", s.min_lr_ratio, 0.0);
  return s;
}

}  // namespace qft::optim
