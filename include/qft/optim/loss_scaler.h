// Dynamic loss scaling for fp16 (Micikevicius et al. 2018), by the rules of DeepSpeed's DynamicLossScaler.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

namespace qft::optim {

struct LossScalerOptions {
  double loss_scale = 0.0;              ///< above 0: always this one
  std::int64_t initial_power = 16;      ///< the first scale is 2^initial_power
  std::int64_t window = 1000;           ///< steps without overflow after which the scale doubles
  std::int64_t hysteresis = 2;          ///< overflows until the scale is halved
  bool consecutive_hysteresis = false;  ///< a step without overflow starts counting them anew
  double min_loss_scale = 1.0;
};

/// A function of the steps' outcomes, which all ranks know alike, so that all ranks have the same scale.
class LossScaler {
 public:
  LossScaler() = default;  ///< no scaling: 1 for ever
  explicit LossScaler(const LossScalerOptions& options);

  double scale() const { return scale_; }
  bool dynamic() const { return dynamic_; }
  /// After each step: whether its gradients were finite. Throws Error after a hundred steps in a row that were not, if
  /// the scale is at its minimum.
  void update(bool finite);

  /// The state for a checkpoint; null where the scale never changes, and no state is taken then.
  nlohmann::json to_json() const;
  void from_json(const nlohmann::json& state);

 private:
  LossScalerOptions options_;
  bool dynamic_ = false;
  double scale_ = 1.0;
  std::int64_t left_ = 1;  ///< overflows until the scale is halved
  std::int64_t step_ = 0, last_overflow_ = -1;
  std::int64_t in_a_row_ = 0;  ///< overflows
};

}  // namespace qft::optim
