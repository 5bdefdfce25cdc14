// Which objective a run trains: the table of those that there are.
#pragma once

#include "qft/config/run_config.h"
#include "qft/parallel/objective.h"

#include <memory>
#include <string_view>

namespace qft::engine {

struct ObjectiveRow : parallel::ObjectiveTraits {
  std::string_view name;  ///< cross_entropy, dft, eaft or asft (stages pt and sft), kto, rm, seq_cls, or a value of pref_loss
  std::unique_ptr<parallel::Objective> (*make)(const config::RunConfig& config, const parallel::BatchTotals& totals);
};

/// What a step trains: the row's objective, for a model with experts with what its routers add.
std::unique_ptr<parallel::Objective> make_objective(const config::RunConfig& config, const model::ModelConfig& model,
                                                    const parallel::BatchTotals& totals);

/// Whether it compares rewards with a mean of them that is known before the gradients (pref_bco_weight).
bool compares_rewards(const config::RunConfig& config);

/// The row that a configuration asks for.
const ObjectiveRow& objective_of(const config::RunConfig& config);

}  // namespace qft::engine
