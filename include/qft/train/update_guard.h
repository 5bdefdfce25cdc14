// Whether a step's gradients may change the weights.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::train {

/// Where a run stands; part of a checkpoint.
struct GuardState {
  std::int64_t skipped = 0;         ///< updates skipped so far
  std::int64_t skipped_in_row = 0;  ///< of these, the last ones without a good step in between
  std::int64_t good_steps = 0;
  double usual_loss = 0.0;  ///< moving mean over the good steps
};

struct GuardPolicy {
  double loss_spike_factor = 0.0;        ///< a loss above this multiple of the usual one is a spike; 0: none is
  std::int64_t max_skipped_updates = 0;  ///< in a row, then the run ends; 0: it never does
};

/// Good steps before a loss can be a spike.
inline constexpr std::int64_t kGuardWarmup = 10;

/// Takes one step into account. Returns an empty text if the update may happen, else why it must be skipped. Loss and norm are
/// the reduced ones, the same bits on all ranks, so that all ranks decide alike. Throws Error where too many updates in a row
/// were skipped.
std::string judge_step(GuardState& state, const GuardPolicy& policy, std::int64_t step, double loss, double grad_norm,
                       bool finite);

nlohmann::json to_json(const GuardState& state);
GuardState guard_from_json(const nlohmann::json& json);

}  // namespace qft::train
