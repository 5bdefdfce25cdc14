// The second half of the table of stages (config/stages.h): the objective of a run, and the sources of the columns that it reads.
#pragma once

#include "qft/config/run_config.h"
#include "qft/engine/column_source.h"
#include "qft/loader/schedule.h"
#include "qft/pack/reader.h"
#include "qft/parallel/objective.h"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace qft::totals {

/// Named totals (parallel::BatchTotals::named). KTO: the KL divergence of the policy from the reference, at least 0, and the
/// number of desirable items.
inline constexpr std::string_view kKl = "kl", kDesirable = "desirable";
/// Pair losses: the mean reward with which BCO compares rewards, and the number of labels of chosen answers.
inline constexpr std::string_view kReward = "reward", kChosenLabels = "chosen_labels";

}  // namespace qft::totals

namespace qft::engine {

class Instance;

/// For the sources of an objective. All references must outlive them.
struct SourceContext {
  const config::RunConfig& config;
  Instance& instance;
  ColumnSource* reference;  ///< null: no reference, or a lane of the action lists
  bool training;            ///< false: evaluation, without gradients
};

using Sources = std::vector<std::unique_ptr<ColumnSource>>;

/// One objective.
struct ObjectiveRow {
  std::string_view name;  ///< for messages: the loss, or the stage if it has one loss
  parallel::ObjectiveKind kind = parallel::ObjectiveKind::row_local;
  std::span<const std::string_view> columns = {};  ///< columns without which it fails
  std::unique_ptr<parallel::Objective> (*make)(const config::RunConfig& config, const parallel::BatchTotals& totals) = nullptr;
  bool loss_is_nll = false;  ///< the loss is the mean -log p of a label
  /// Creates the sources of its totals, and of columns beside the reference's; null: none.
  Sources (*make_sources)(const SourceContext& context) = nullptr;
  /// True if such a source makes a forward pass over the trained sequences; null: never.
  bool (*scores_first)(const config::RunConfig& config) = nullptr;
  /// Metrics are not means over items: those of several evaluation sets together need a pass over all items.
  bool metrics_of_set = false;
  /// Checks items that will train or be scored, on one rank. Warns of useless ones, throws ConfigError for invalid ones; null:
  /// every item will do.
  void (*check_items)(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config) = nullptr;

  bool reads(std::string_view column) const;
  bool reads_reference() const { return reads(columns::kReference) || reads(columns::kReferenceRows); }
};

/// Returns the row that a run file selects.
const ObjectiveRow& objective_of(const config::RunConfig& config);

/// Returns the properties of the run's objective that planning needs.
parallel::ObjectiveTraits traits_of(const config::RunConfig& config);

/// Creates the objective of a step: the selected row's, and for a model with experts the router losses added to it.
std::unique_ptr<parallel::Objective> make_objective(const config::RunConfig& config, const model::ModelConfig& model,
                                                    const parallel::BatchTotals& totals);

}  // namespace qft::engine
