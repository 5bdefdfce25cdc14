// The table of training objectives, and the row that a run file selects.
#pragma once

#include "qft/config/run_config.h"
#include "qft/parallel/objective.h"

#include <memory>
#include <string_view>

namespace qft::engine {

/// One objective: its traits, its name and its constructor.
struct ObjectiveRow : parallel::ObjectiveTraits {
  std::string_view name;  ///< cross_entropy, dft, eaft or asft (stages pt and sft), kto, rm, seq_cls, or a value of pref_loss
  std::unique_ptr<parallel::Objective> (*make)(const config::RunConfig& config, const parallel::BatchTotals& totals);
};

/// Creates the objective of a step: the selected row's, and for a model with experts the router losses added to it.
std::unique_ptr<parallel::Objective> make_objective(const config::RunConfig& config, const model::ModelConfig& model,
                                                    const parallel::BatchTotals& totals);

/// True if the objective compares rewards with their mean, which must be known before the gradients (pref_bco_weight).
bool compares_rewards(const config::RunConfig& config);

/// Returns the row that a run file selects.
const ObjectiveRow& objective_of(const config::RunConfig& config);

}  // namespace qft::engine
