#include "qft/optim/loss_scaler.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

namespace qft::optim {
namespace {

/// Overflows at the minimum scale after which the model, not the scale, must be at fault.
constexpr std::int64_t kHopeless = 100;

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options)
    : options_(options),
      dynamic_(options.loss_scale <= 0.0),
      scale_(dynamic_ ? std::max(std::exp2(static_cast<double>(options.initial_power)), options.min_loss_scale)
                      : options.loss_scale),
      left_(options.hysteresis) {}

void LossScaler::update(bool finite) {
  if (!dynamic_) return;
  if (!finite) {
    last_overflow_ = step_;
    ++in_a_row_;
    require(
        in_a_row_ < options_.hysteresis + kHopeless || scale_ > options_.min_loss_scale,
        "gradients were not finite in {} steps in a row, although the loss scale is at its minimum {}: fp16 does not suit this "
        "model or learning rate; use bf16: true, or lower learning_rate",
        in_a_row_, scale_);
    if (left_ > 1) {
      --left_;
    } else {
      scale_ = std::max(scale_ / 2.0, options_.min_loss_scale);
    }
  } else {
    in_a_row_ = 0;
    if (options_.consecutive_hysteresis) left_ = options_.hysteresis;
    if ((step_ - last_overflow_) % options_.window == 0) {
      left_ = options_.hysteresis;
      scale_ *= 2.0;
    }
  }
  ++step_;
}

nlohmann::json LossScaler::to_json() const {
  if (!dynamic_) return {};
  return {{"scale", scale_}, {"left", left_}, {"step", step_}, {"last_overflow", last_overflow_}, {"in_a_row", in_a_row_}};
}

void LossScaler::from_json(const nlohmann::json& state) {
  if (!dynamic_ || state.is_null()) return;
  scale_ = state.at("scale").get<double>();
  left_ = state.at("left").get<std::int64_t>();
  step_ = state.at("step").get<std::int64_t>();
  last_overflow_ = state.at("last_overflow").get<std::int64_t>();
  in_a_row_ = state.at("in_a_row").get<std::int64_t>();
}

}  // namespace qft::optim
