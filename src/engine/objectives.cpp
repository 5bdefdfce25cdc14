#include "qft/engine/objectives.h"

#include "qft/core/error.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "classification.h"
#include "kto.h"
#include "preference.h"
#include "reward.h"
#include "token_losses.h"

namespace qft::engine {
namespace {

using ObjectivePtr = std::unique_ptr<parallel::Objective>;
using config::RunConfig;
constexpr std::string_view kCrossEntropy = "cross_entropy";

/// Returns the name of the row that a run file selects.
std::string_view name_of(const RunConfig& config) {
  const auto& f = config.finetuning;
  if (f.stage == "dpo") return f.pref_loss;
  if (f.stage == "kto" || f.stage == "rm" || f.stage == "seq_cls") return f.stage;
  if (f.use_dft_loss) return "dft";
  if (f.use_eaft_loss) return "eaft";
  if (f.use_asft_loss) return "asft";
  return kCrossEntropy;
}

ObjectivePtr token_mean(const RunConfig&, const parallel::BatchTotals& totals) {
  return std::make_unique<parallel::TokenMeanLoss>(totals);
}

ObjectivePtr weighted_tokens(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<WeightedTokenLoss>(token_loss(name_of(config)), TokenLossOptions{f.eaft_alpha, f.asft_alpha}, totals);
}

ObjectivePtr preference(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<PreferenceLoss>(
      pair_loss(f.pref_loss),
      PairOptions{f.pref_beta, f.simpo_gamma, f.pref_ftx, f.dpo_label_smoothing, f.rpo_alpha, f.ld_alpha, f.pref_bco_weight},
      totals);
}

ObjectivePtr kto(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<KtoLoss>(KtoOptions{f.pref_beta, f.pref_ftx, f.kto_chosen_weight, f.kto_rejected_weight}, totals);
}

ObjectivePtr reward(const RunConfig&, const parallel::BatchTotals& totals) {
  return std::make_unique<RewardLoss>(totals);
}

ObjectivePtr classification(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<ClassificationLoss>(problem(f.effective_problem_type(f.num_labels.value_or(1))),
                                              f.num_labels.value_or(1), totals);
}

using Kind = parallel::ObjectiveKind;

/// Objectives of single samples first, then those of whole sequences.
std::vector<ObjectiveRow> objectives() {
  std::vector<ObjectiveRow> all = {{{.kind = Kind::row_local}, kCrossEntropy, token_mean}};
  for (const TokenLoss& loss : token_losses())
    all.push_back(
        {{.kind = Kind::row_local, .reference = loss.reference, .reference_rows = loss.reference}, loss.name, weighted_tokens});
  all.push_back({{.kind = Kind::sequence_level, .item_sequences = 2, .scores = true}, "rm", reward});
  all.push_back({{.kind = Kind::sequence_level, .scores = true, .has_item_targets = true}, "seq_cls", classification});
  all.push_back({{.kind = Kind::sequence_level, .item_sequences = 2, .reference = true, .estimates_kl = true}, "kto", kto});
  for (const PairLoss& loss : pair_losses())
    all.push_back({{.kind = Kind::sequence_level, .item_sequences = 2, .reference = loss.reference}, loss.name, preference});
  return all;
}

}  // namespace

ObjectivePtr make_objective(const RunConfig& config, const model::ModelConfig& model, const parallel::BatchTotals& totals) {
  ObjectivePtr objective = objective_of(config).make(config, totals);
  if (model.experts.count == 0) return objective;
  const parallel::RoutingCoefficients coefficients{config.model.moe_aux_loss_coef.value_or(model.experts.aux_loss_coef),
                                                   config.model.moe_z_loss_coef};
  return std::make_unique<parallel::RoutingObjective>(std::move(objective), model, coefficients, totals);
}

bool compares_rewards(const RunConfig& config) {
  return config.finetuning.stage == "dpo" && config.finetuning.pref_bco_weight > 0;
}

const ObjectiveRow& objective_of(const RunConfig& config) {
  static const std::vector<ObjectiveRow> rows = objectives();
  const auto row = std::ranges::find(rows, name_of(config), &ObjectiveRow::name);
  if (row == rows.end())
    fail_config("pref_loss {} is not implemented: qft --help lists the implemented ones", config.finetuning.pref_loss);
  return *row;
}

}  // namespace qft::engine
