// The best checkpoint by a metric, and early stopping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::train {

/// What is known after each evaluation; goes into checkpoints with the rest of the progression. Where evaluations and saves
/// fall on different steps, the best evaluation may have no checkpoint: the best checkpoint is the best of those that were
/// evaluated at their own step.
struct BestModel {
  struct Measured {
    double metric = 0.0;
    std::int64_t step = 0;
    bool operator==(const Measured&) const = default;
  };
  std::string metric = "eval_loss";    ///< what is measured
  std::optional<Measured> evaluation;  ///< the best so far, saved or not
  std::int64_t evaluations_since = 0;  ///< without a better one
  std::string checkpoint;              ///< name of the best checkpoint's directory; empty: none was evaluated
  Measured at_checkpoint;              ///< what that was measured at
  std::optional<Measured> latest;      ///< the last evaluation, where it is better than the best checkpoint's

  /// Takes in a measurement at `step`. What is not finite is never better.
  void observe(double value, std::int64_t at_step, bool greater_is_better);
  /// After a checkpoint `name` of `saved_step` is certain to be written.
  void saved(const std::string& name, std::int64_t saved_step);
  /// True after `patience` evaluations in a row without a better metric.
  bool gives_up(std::optional<std::int64_t> patience) const { return patience && evaluations_since >= *patience; }
  /// What reports call the best: the best checkpoint's measurement, where there is none the best evaluation.
  std::optional<Measured> reported() const { return checkpoint.empty() ? evaluation : at_checkpoint; }
};

nlohmann::json to_json(const BestModel& best);
BestModel best_from_json(const nlohmann::json& json);

}  // namespace qft::train
