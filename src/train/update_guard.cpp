#include "qft/train/update_guard.h"

#include "qft/core/error.h"

#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

constexpr double kMemory = 0.95;  // decay of the moving mean: about twenty steps

}  // namespace

std::string judge_step(GuardState& state, const GuardPolicy& policy, std::int64_t step, double loss, double grad_norm,
                       bool finite) {
  const bool spike = finite && policy.loss_spike_factor > 0 && state.good_steps >= kGuardWarmup &&
                     loss > policy.loss_spike_factor * state.usual_loss;
  if (finite && !spike) {
    state.usual_loss = state.good_steps == 0 ? loss : kMemory * state.usual_loss + (1 - kMemory) * loss;
    ++state.good_steps;
    state.skipped_in_row = 0;
    return {};
  }
  ++state.skipped;
  ++state.skipped_in_row;
  const std::string why =
      spike ? fmt::format("loss {:.4f} is more than {} times the usual {:.4f}", loss, policy.loss_spike_factor, state.usual_loss)
            : fmt::format("loss {} and gradient norm {} are not both finite", loss, grad_norm);
  if (policy.max_skipped_updates > 0 && state.skipped_in_row >= policy.max_skipped_updates)
    fail(
        "step {}: {}; {} updates in a row were skipped (max_skipped_updates): resume from an earlier checkpoint with a lower "
        "learning_rate, or look at the data of these steps",
        step, why, state.skipped_in_row);
  return why;
}

nlohmann::json to_json(const GuardState& s) {
  return {
      {"skipped", s.skipped}, {"skipped_in_row", s.skipped_in_row}, {"good_steps", s.good_steps}, {"usual_loss", s.usual_loss}};
}

GuardState guard_from_json(const nlohmann::json& json) {
  return {json.at("skipped").get<std::int64_t>(), json.at("skipped_in_row").get<std::int64_t>(),
          json.at("good_steps").get<std::int64_t>(), json.at("usual_loss").get<double>()};
}

}  // namespace qft::train
