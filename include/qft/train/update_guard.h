// Decides whether a step's gradients may change the weights.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::train {

/// State of the guard; saved in checkpoints.
struct GuardState {
  std::int64_t skipped = 0;         ///< updates skipped so far
  std::int64_t skipped_in_row = 0;  ///< consecutive skips up to now
  std::int64_t good_steps = 0;
  double usual_loss = 0.0;  ///< moving mean over the good steps
};

/// Limits from the run file.
struct GuardPolicy {
  double loss_spike_factor = 0.0;        ///< a loss above this multiple of the usual loss is a spike; 0: spikes are allowed
  std::int64_t max_skipped_updates = 0;  ///< in a row, before the run ends; 0: unlimited
};

/// Number of good steps before a loss can count as a spike.
inline constexpr std::int64_t kGuardWarmup = 10;

/// Records one step. Returns an empty text if the update may happen, else the reason to skip it. Loss and norm are the reduced
/// values with the same bits on all ranks, so all ranks decide alike. Throws Error after too many skipped updates in a row.
std::string judge_step(GuardState& state, const GuardPolicy& policy, std::int64_t step, double loss, double grad_norm,
                       bool finite);

nlohmann::json to_json(const GuardState& state);
GuardState guard_from_json(const nlohmann::json& json);

}  // namespace qft::train
