// Which checkpoint is the best by a metric, and whether it is time to give up on a better one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace qft::train {

/// What is known after each evaluation; goes into checkpoints with the rest of the progression.
struct BestModel {
  std::optional<double> metric;          ///< the best so far
  std::int64_t step = 0;                 ///< at which it was measured
  std::int64_t evaluations_since = 0;    ///< without a better one
  std::string checkpoint;                ///< name of the directory that holds it; empty until that step is saved

  /// Takes in a measurement at `step`. NaN is never better.
  void observe(double value, std::int64_t at_step, bool greater_is_better);
  /// After a checkpoint `name` of `saved_step` is certain to be written.
  void saved(const std::string& name, std::int64_t saved_step);
  /// True after `patience` evaluations in a row without a better metric.
  bool gives_up(std::optional<std::int64_t> patience) const { return patience && evaluations_since >= *patience; }
};

}  // namespace qft::train
