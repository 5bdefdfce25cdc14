#include "qft/engine/objectives.h"

#include "qft/core/error.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "classification.h"
#include "embedding.h"
#include "kto.h"
#include "preference.h"
#include "reranker.h"
#include "reward.h"
#include "token_losses.h"

namespace qft::engine {
namespace {

using config::RunConfig;

/// The objectives of a stage.
struct StageObjectives {
  std::string_view stage;
  const ObjectiveRow& (*select)(const RunConfig& config);  ///< the row for the keys of a run in this stage
};

constexpr StageObjectives kStages[] = {
    {"pt", token_objective},
    {"sft", token_objective},
    {"dpo", pair_objective},
    {"rm", reward_objective},
    {"kto", kto_objective},
    {"seq_cls", classification_objective},
    {"embedding", embedding_objective},
    {"reranker", reranker_objective},
};

}  // namespace

bool ObjectiveRow::reads(std::string_view column) const {
  return std::ranges::find(columns, column) != columns.end();
}

const ObjectiveRow& objective_of(const RunConfig& config) {
  const auto row = std::ranges::find(kStages, config.stage().name, &StageObjectives::stage);
  QFT_ASSERT(row != std::end(kStages), "stage {} has no objective", config.stage().name);
  return row->select(config);
}

parallel::ObjectiveTraits traits_of(const RunConfig& config) {
  const ObjectiveRow& row = objective_of(config);
  const config::Stage& stage = config.stage();
  const int sequences = stage.sequences > 0 ? stage.sequences : stage.limits(config).planned_sequences();
  parallel::ObjectiveTraits traits{row.kind, sequences, row.reads_reference(), row.reads(columns::kReferenceRows)};
  if (stage.trains_first_only)
    traits.pass_before = parallel::PassBefore::untrained_sequences;
  else if (row.scores_first != nullptr && row.scores_first(config))
    traits.pass_before = parallel::PassBefore::trained_sequences;
  return traits;
}

std::unique_ptr<parallel::Objective> make_objective(const RunConfig& config, const model::ModelConfig& model,
                                                    const parallel::BatchTotals& totals) {
  auto objective = objective_of(config).make(config, totals);
  if (model.experts.count == 0) return objective;
  const parallel::RoutingCoefficients coefficients{config.model.moe_aux_loss_coef.value_or(model.experts.aux_loss_coef),
                                                   config.model.moe_z_loss_coef};
  return std::make_unique<parallel::RoutingObjective>(std::move(objective), model, coefficients, totals);
}

}  // namespace qft::engine
