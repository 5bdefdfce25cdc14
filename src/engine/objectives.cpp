#include "qft/engine/objectives.h"

#include "qft/core/error.h"
#include "qft/parallel/routing_objective.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "preference.h"
#include <fmt/ranges.h>

namespace qft::engine {
namespace {

using Made = std::unique_ptr<parallel::Objective>;
using config::RunConfig;

Made token_mean(const RunConfig&, const parallel::BatchTotals& totals) {
  return std::make_unique<parallel::TokenMeanLoss>(totals);
}

Made preference(const RunConfig& config, const parallel::BatchTotals& totals) {
  const auto& f = config.finetuning;
  return std::make_unique<PreferenceLoss>(
      pair_loss(f.pref_loss), PairOptions{f.pref_beta, f.simpo_gamma, f.pref_ftx, f.dpo_label_smoothing, f.ld_alpha}, totals);
}

/// A row of each loss of pairs behind those of single samples.
std::vector<ObjectiveRow> objectives() {
  std::vector<ObjectiveRow> all = {{{parallel::ObjectiveKind::row_local, 1}, "cross_entropy", token_mean}};
  for (const PairLoss& loss : pair_losses())
    all.push_back({{parallel::ObjectiveKind::sequence_level, 2, loss.reference}, loss.name, preference});
  return all;
}

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
  static const std::vector<ObjectiveRow> rows = objectives();
  const auto row = std::ranges::find(rows, name, &ObjectiveRow::name);
  if (row == rows.end()) fail_config("pref_loss {} is not implemented: qft --help lists those that are", f.pref_loss);
  return *row;
}

void require_reference(const RunConfig& config, const model::ModelSpec& spec) {
  const ObjectiveRow& row = objective_of(config);
  if (row.reference && !spec.lora.modules_to_save.empty())
    fail_config(
        "pref_loss {} compares with a reference, which is the model without its adapter, but additional_target has modules that "
        "train in place, so that nothing has them as they were: remove additional_target, or use a pref_loss without a reference",
        row.name);
  if (!row.reference || spec.lora.enabled()) return;
  std::vector<std::string_view> without;
  for (const PairLoss& loss : pair_losses())
    if (!loss.reference) without.push_back(loss.name);
  const auto given = config.given.find("pref_loss");
  fail_config(
      "{}pref_loss {} compares with a reference, which is the model without its adapter, but there is no adapter here (a model "
      "of "
      "its own as ref_model is not implemented): train with finetuning_type: lora (in evaluation, give adapter_name_or_path), or "
      "use a pref_loss without a reference: {}",
      given == config.given.end() ? "" : given->second + ": ", row.name, fmt::join(without, ", "));
}

}  // namespace qft::engine
