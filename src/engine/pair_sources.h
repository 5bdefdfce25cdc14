// Sources of the totals that losses of pairs read.
#pragma once

#include "qft/engine/objectives.h"

namespace qft::engine {

/// True if the loss compares rewards with their mean, which must be known before the gradients (pref_bco_weight).
bool compares_rewards(const config::RunConfig& config);

/// Returns the sources of the totals totals::kReward, if the loss compares rewards, and totals::kChosenLabels, for gradients with
/// rpo_alpha.
Sources pair_sources(const SourceContext& context);

}  // namespace qft::engine
