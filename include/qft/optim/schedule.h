// Learning-rate schedules, as transformers' optimization.py defines them.
#pragma once

#include <cstdint>
#include <string>

namespace qft::optim {

enum class ScheduleKind { constant, constant_with_warmup, linear, cosine };

/// transformers' lr_scheduler_type words; throws ConfigError naming the implemented ones for any other.
ScheduleKind parse_schedule(const std::string& name);

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  double peak = 5e-5;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  bool log_warmup = false;  ///< log(step + 1) / log(max(2, warmup_steps)) instead of step / warmup_steps: DeepSpeed's WarmupLR

  /// The learning rate of the update number `step` (0-based): with warm-up the first one is 0, as in transformers.
  double at(std::int64_t step) const;
};

}  // namespace qft::optim
