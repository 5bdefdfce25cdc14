// Dynamic loss scaling for fp16 (Micikevicius et al. 2018), with the rules of DeepSpeed's DynamicLossScaler.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

namespace qft::optim {

struct LossScalerOptions {
  double loss_scale = 0.0;              ///< above 0: a fixed scale
  std::int64_t initial_power = 16;      ///< the first scale is 2^initial_power
  std::int64_t window = 1000;           ///< steps without overflow after which the scale doubles
  std::int64_t hysteresis = 2;          ///< overflows before the scale is halved
  bool consecutive_hysteresis = false;  ///< a step without overflow resets the overflow count
  double min_loss_scale = 1.0;
};

/// Computes the scale from the steps' outcomes. All ranks know the same outcomes, so they have the same scale.
class LossScaler {
 public:
  LossScaler() = default;  ///< no scaling: always 1
  explicit LossScaler(const LossScalerOptions& options);

  double scale() const { return scale_; }
  bool dynamic() const { return dynamic_; }
  /// Call it after each step with whether its gradients were finite. Throws Error after a hundred overflows in a row at the
  /// minimum scale.
  void update(bool finite);

  /// Returns the state for a checkpoint; null if the scale never changes. Then from_json() ignores its argument.
  nlohmann::json to_json() const;
  void from_json(const nlohmann::json& state);

 private:
  LossScalerOptions options_;
  bool dynamic_ = false;
  double scale_ = 1.0;
  std::int64_t left_ = 1;  ///< overflows before the scale is halved
  std::int64_t step_ = 0, last_overflow_ = -1;
  std::int64_t in_a_row_ = 0;  ///< overflows
};

}  // namespace qft::optim
