#include "qft/engine/objectives.h"

#include "qft/core/error.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "simpo.h"

namespace qft::engine {
namespace {

using Made = std::unique_ptr<parallel::Objective>;
using config::RunConfig;

Made token_mean(const RunConfig&, const parallel::BatchTotals& totals) {
  return std::make_unique<parallel::TokenMeanLoss>(totals);
}

Made simpo(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<SimpoLoss>(f.pref_beta, f.simpo_gamma, f.pref_ftx, totals);
}

constexpr ObjectiveRow kObjectives[] = {
    {{parallel::ObjectiveKind::row_local, 1}, "cross_entropy", token_mean},
    {{parallel::ObjectiveKind::sequence_level, 2}, "simpo", simpo},
};

}  // namespace

Made make_objective(const RunConfig& config, const model::ModelConfig& model, const parallel::BatchTotals& totals) {
  Made made = objective_of(config).make(config, totals);
  if (model.experts.count == 0) return made;
  const parallel::RoutingCoefficients coefficients{config.model.moe_aux_loss_coef.value_or(model.experts.aux_loss_coef),
                                                   config.model.moe_z_loss_coef};
  return std::make_unique<parallel::RoutingObjective>(std::move(made), model, coefficients, totals);
}

const ObjectiveRow& objective_of(const RunConfig& config) {
  const auto& f = config.finetuning;
  const std::string_view name = f.stage == "dpo" ? std::string_view(f.pref_loss) : "cross_entropy";
  const auto row = std::ranges::find(kObjectives, name, &ObjectiveRow::name);
  if (row == std::end(kObjectives)) fail_config("pref_loss {} is not implemented: qft --help lists those that are", f.pref_loss);
  return *row;
}

}  // namespace qft::engine
