// Losses of preference pairs: a table with one row per value of pref_loss.
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace qft::engine {

/// The keys of the run file that the losses read.
struct PairOptions {
  double beta = 0.1;             ///< pref_beta
  double gamma = 0.5;            ///< simpo_gamma
  double ftx = 0.0;              ///< pref_ftx
  double label_smoothing = 0.0;  ///< dpo_label_smoothing
  double rpo_alpha = 0.0;
  std::optional<double> ld_alpha = {};
  double bco = 0.0;  ///< pref_bco_weight
};

/// Values per pair [P], fp64.
struct PairTerms {
  at::Tensor loss;                       ///< without ftx
  at::Tensor by_chosen, by_rejected;     ///< d(loss) / d(value of the chosen, of the rejected answer)
  std::vector<at::Tensor> metrics = {};  ///< values of PairLoss::metrics
};

/// A loss of pairs. An answer's value is the sum (or mean) of its labels' log-probabilities, minus the reference's if there is
/// one.
struct PairLoss {
  std::string_view name;  ///< a value of pref_loss
  bool reference = false;
  bool mean = false;
  PairTerms (*terms)(const PairOptions& options, const at::Tensor& chosen, const at::Tensor& rejected) = nullptr;
  std::span<const std::string_view> metrics = {};  ///< names of extra metrics
};

std::span<const PairLoss> pair_losses();
/// Returns the row with that name; throws Error if there is none.
const PairLoss& pair_loss(std::string_view name);

/// Mixes BCO (Jung et al. 2024, equation 9) into the terms with weight `weight / (1 + weight)`, as LLaMA-Factory does. BCO
/// compares rewards with `baseline`.
PairTerms with_bco(const PairTerms& terms, const PairOptions& options, double baseline, const at::Tensor& chosen,
                   const at::Tensor& rejected);

/// Returns the objective of a run of stage dpo, by pref_loss.
const ObjectiveRow& pair_objective(const config::RunConfig& config);

/// For ObjectiveRow::check_items. A pair of equal answers has no gradient except from pref_ftx. Warns of such pairs; throws
/// ConfigError if all pairs are equal. LLaMA-Factory keeps them too.
void check_pairs(const pack::PackReader& pack, const loader::ItemSubset& items, const config::RunConfig& config);

/// Throws Error if an item of the micro-batch is not a pair.
void require_pairs(const model::MicroInput& in);

/// An item is a pair of sequences, the chosen one first. The loss is the mean over the pairs of
///   terms(chosen, rejected) - ftx * mean log-probability of the chosen answer's labels
/// plus rpo_alpha times the mean -log-probability over all labels of chosen answers (Pang et al. 2024, RPO; CPO: cpo_alpha).
/// Metrics have TRL's names; an answer's reward is beta times its value; logits are means over labels and vocabulary. With
/// ld_alpha (Liu et al. 2024, LD-DPO) the policy's labels beyond the shorter answer's length are weighted by ld_alpha. With bco
/// the loss also compares rewards with the total totals::kReward.
class PreferenceLoss final : public parallel::SequenceObjective {
 public:
  PreferenceLoss(const PairLoss& loss, const PairOptions& options, const parallel::BatchTotals& totals);
  double denominator() const override { return totals_.items; }
  std::span<const std::string_view> metrics() const override { return names_; }
  std::int64_t row_values() const override { return 1; }
  at::Tensor read_rows(const model::MicroInput& in, const ops::HeadChunk& chunk, const at::Tensor& values,
                       const at::Tensor& grad) const override;
  double summarise(std::map<std::string, double>& metrics) const override;

 protected:
  at::Tensor observe_sequences(const model::MicroInput& in, const parallel::SequenceSums& sums,
                               const at::Tensor& grad) const override;
  at::Tensor label_weights(const model::MicroInput& in, const at::Tensor& counts) const override;

 private:
  at::Tensor label_sums(const parallel::SequenceSums& sums) const;

  const PairLoss& loss_;
  PairOptions options_;
  parallel::BatchTotals totals_;
  std::vector<std::string_view> names_;
};

}  // namespace qft::engine
