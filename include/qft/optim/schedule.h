// Learning-rate schedules as transformers' optimization.py defines them, with the keywords of lr_scheduler_kwargs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::optim {

enum class ScheduleKind : std::uint8_t {
  constant,
  constant_with_warmup,
  linear,
  cosine,
  cosine_with_restarts,
  polynomial,
  inverse_sqrt,
  cosine_with_min_lr,
  cosine_warmup_with_min_lr,
  warmup_stable_decay
};

/// Shape of the rise and fall in warmup_stable_decay.
enum class Ramp : std::uint8_t { linear, cosine, one_minus_sqrt };

struct Schedule {
  ScheduleKind kind = ScheduleKind::linear;
  double peak = 5e-5;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 1;
  bool log_warmup = false;  ///< log(step + 1) / log(max(2, warmup_steps)) instead of step / warmup_steps: DeepSpeed's WarmupLR

  double num_cycles = 0.5;               ///< cosine waves; for cosine_with_restarts the number of whole cycles, 1 by default
  double lr_end = 1e-7, power = 1.0;     ///< polynomial
  double timescale = 0.0;                ///< inverse_sqrt; 0: the warm-up's steps, or 10,000 without a warm-up
  double min_lr_rate = 0.0;              ///< final rate of a cosine, relative to the peak
  std::optional<double> warmup_lr_rate;  ///< cosine_warmup_with_min_lr: first rate of the warm-up, relative to the peak
  Ramp warmup_type = Ramp::linear, decay_type = Ramp::cosine;
  std::int64_t num_decay_steps = 0, num_stable_steps = 0;
  double min_lr_ratio = 0.0;  ///< first and last rate of warmup_stable_decay, relative to the peak

  /// Returns the learning rate of update `step` (0-based). In most schedules with warm-up the first one is 0, as in transformers.
  double at(std::int64_t step) const;
};

/// Returns `base` with lr_scheduler_type and lr_scheduler_kwargs (null, or a mapping) applied. Throws ConfigError for an unknown
/// name, with the implemented ones, and for an unknown or missing keyword.
Schedule make_schedule(const std::string& name, const nlohmann::json& kwargs, Schedule base);

}  // namespace qft::optim
