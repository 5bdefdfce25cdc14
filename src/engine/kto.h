// KTO (Ethayarajh et al. 2024): a loss of single answers that are liked or not, less an estimate of the KL divergence.
#pragma once

#include "qft/parallel/objective.h"

namespace qft::engine {

/// The keys of a run that the loss reads.
struct KtoOptions {
  double beta = 0.1;             ///< pref_beta
  double ftx = 0.0;              ///< pref_ftx
  double chosen_weight = 1.0;    ///< kto_chosen_weight
  double rejected_weight = 1.0;  ///< kto_rejected_weight
};

/// An item is a sequence, whose MicroInput::liked says whether its answer is liked. With its log-ratio r, the sum of its labels'
/// log-probabilities less the reference's, the loss is the mean over the items of
///   weight * (1 - sigmoid(beta * (r - kl)))  of liked answers (equation 8; TRL: loss_type kto)
///   weight * (1 - sigmoid(beta * (kl - r)))  of the others
/// `kl` of the totals, not below 0, is that of the whole global batch; TRL and LLaMA-Factory take a micro-batch's. ftx adds, as
/// LLaMA-Factory does, ftx * items / liked items times the mean over the liked answers of a label's mean -log-probability.
class KtoLoss final : public parallel::SequenceObjective {
 public:
  KtoLoss(const KtoOptions& options, const parallel::BatchTotals& totals) : options_(options), totals_(totals) {}
  double denominator() const override { return totals_.items; }
  /// By TRL's names: those of rewards and logps are means over the answers of their kind.
  std::span<const std::string_view> metrics() const override;
  double summarise(std::map<std::string, double>& metrics) const override;

 protected:
  at::Tensor observe_sequences(const model::MicroInput& in, const parallel::SequenceSums& sums,
                               const at::Tensor& grad) const override;

 private:
  KtoOptions options_;
  parallel::BatchTotals totals_;
};

}  // namespace qft::engine
