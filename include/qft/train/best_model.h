// Tracks the best checkpoint by a metric, and early stopping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::train {

/// The result of the evaluations so far; saved in checkpoints with the rest of the progression. If evaluations and saves fall on
/// different steps, the best evaluation may have no checkpoint. The best checkpoint is the best among those that were evaluated
/// at their own step.
struct BestModel {
  /// A metric and the step of its evaluation.
  struct Measured {
    double metric = 0.0;
    std::int64_t step = 0;
    bool operator==(const Measured&) const = default;
  };
  std::string metric = "eval_loss";    ///< name of the metric
  std::optional<Measured> evaluation;  ///< the best so far, saved or not
  std::int64_t evaluations_since = 0;  ///< evaluations since the best one
  std::string checkpoint;              ///< name of the best checkpoint's directory; empty: no checkpoint was evaluated
  Measured at_checkpoint;              ///< the evaluation of `checkpoint`
  std::optional<Measured> latest;      ///< the last evaluation, if it beats the best checkpoint's

  /// Records an evaluation at `at_step`. A value that is not finite is never better.
  void observe(double value, std::int64_t at_step, bool greater_is_better);
  /// Call when checkpoint `name` of `saved_step` is certain to be written.
  void saved(const std::string& name, std::int64_t saved_step);
  /// True after `patience` evaluations in a row without a better metric: training stops early.
  bool stops_early(std::optional<std::int64_t> patience) const { return patience && evaluations_since >= *patience; }
  /// Returns the best checkpoint's evaluation; if there is no best checkpoint, the best evaluation.
  std::optional<Measured> reported() const { return checkpoint.empty() ? evaluation : at_checkpoint; }
};

nlohmann::json to_json(const BestModel& best);
BestModel best_from_json(const nlohmann::json& json);

}  // namespace qft::train
