// Which objective a run trains: the table of those that there are.
#pragma once

#include "qft/config/run_config.h"
#include "qft/parallel/objective.h"

#include <memory>
#include <string_view>

namespace qft::engine {

struct ObjectiveRow : parallel::ObjectiveTraits {
  std::string_view name;  ///< of single samples cross_entropy, dft or eaft, of pairs a value of pref_loss
  std::unique_ptr<parallel::Objective> (*make)(const config::RunConfig& config, const parallel::BatchTotals& totals);
};

/// What a step trains: the row's objective, for a model with experts with what its routers add.
std::unique_ptr<parallel::Objective> make_objective(const config::RunConfig& config, const model::ModelConfig& model,
                                                    const parallel::BatchTotals& totals);

/// The row that a configuration asks for.
const ObjectiveRow& objective_of(const config::RunConfig& config);

/// Throws ConfigError where the row needs a reference and the model has no adapter to switch off.
void require_reference(const config::RunConfig& config, const model::ModelSpec& spec);

}  // namespace qft::engine
