// Losses of preference pairs: a table with a row for each value of pref_loss.
#pragma once

#include "qft/parallel/objective.h"

#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace qft::engine {

/// The keys of a run that the losses read.
struct PairOptions {
  double beta = 0.1;             ///< pref_beta
  double gamma = 0.5;            ///< simpo_gamma
  double ftx = 0.0;              ///< pref_ftx
  double label_smoothing = 0.0;  ///< dpo_label_smoothing
  double rpo_alpha = 0.0;
  std::optional<double> ld_alpha = {};
  double bco = 0.0;  ///< pref_bco_weight
};

/// Of pairs [P], fp64.
struct PairTerms {
  at::Tensor loss;                       ///< without ftx
  at::Tensor by_chosen, by_rejected;     ///< d(loss) / d(the chosen, the rejected answer's value)
  std::vector<at::Tensor> metrics = {};  ///< of PairLoss::metrics
};

/// A loss of pairs. An answer's value is the sum, or the mean, of its labels' log-probabilities; less the reference's, if there
/// is one.
struct PairLoss {
  std::string_view name;  ///< of pref_loss
  bool reference = false;
  bool mean = false;
  PairTerms (*terms)(const PairOptions& options, const at::Tensor& chosen, const at::Tensor& rejected) = nullptr;
  std::span<const std::string_view> metrics = {};  ///< further ones
};

std::span<const PairLoss> pair_losses();
/// The row of that name; throws Error where there is none.
const PairLoss& pair_loss(std::string_view name);

/// BCO (Jung et al. 2024, equation 9) of answers' rewards, less `baseline`, in place of its part `weight / (1 + weight)` of the
/// terms of the pairs, as LLaMA-Factory mixes them.
PairTerms with_bco(const PairTerms& terms, const PairOptions& options, double baseline, const at::Tensor& chosen,
                   const at::Tensor& rejected);

/// Throws Error where an item of the micro-batch is no pair.
void require_pairs(const model::MicroInput& in);

/// An item is a pair of sequences, the chosen one first. The loss is the mean over the pairs of
///   terms(chosen, rejected) - ftx * mean log-probability of the chosen answer's labels
/// and rpo_alpha times the mean -log-probability over all labels of chosen answers (Pang et al. 2024, RPO; CPO: cpo_alpha).
/// Metrics by TRL's names; an answer's reward is beta times its value, logits are means over labels and vocabulary. With ld_alpha
/// (Liu et al. 2024, LD-DPO) the policy's labels from the shorter answer's length on count ld_alpha. With bco rewards are
/// compared with BatchTotals::reward too.
class PreferenceLoss final : public parallel::SequenceObjective {
 public:
  PreferenceLoss(const PairLoss& loss, const PairOptions& options, const parallel::BatchTotals& totals);
  double denominator() const override { return pairs_; }
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
  double pairs_, chosen_labels_, baseline_;
  std::vector<std::string_view> names_;
};

}  // namespace qft::engine
