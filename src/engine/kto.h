// KTO (Ethayarajh et al. 2024): a loss of single desirable or undesirable answers, with an estimated KL divergence.
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

namespace qft::engine {

/// The keys of the run file that the loss reads.
struct KtoOptions {
  double beta = 0.1;             ///< pref_beta
  double ftx = 0.0;              ///< pref_ftx
  double chosen_weight = 1.0;    ///< kto_chosen_weight
  double rejected_weight = 1.0;  ///< kto_rejected_weight
};

/// Returns the objective of stage kto.
const ObjectiveRow& kto_objective(const config::RunConfig& config);

/// An item is one sequence; columns::kDesirable says whether its answer is desirable. Let r be its log-ratio: the sum over
/// labels of the policy's log-probabilities minus the reference's. The loss is the mean over the items of
///   weight * (1 - sigmoid(beta * (r - kl)))  for desirable answers (equation 8; TRL: loss_type kto)
///   weight * (1 - sigmoid(beta * (kl - r)))  for undesirable answers
/// `kl` (totals::kKl) belongs to the whole global batch; TRL and LLaMA-Factory use the micro-batch's. As in LLaMA-Factory, ftx
/// adds ftx * items / desirable items times the mean over the desirable answers of a label's mean -log-probability.
class KtoLoss final : public parallel::SequenceObjective {
 public:
  KtoLoss(const KtoOptions& options, const parallel::BatchTotals& totals) : options_(options), totals_(totals) {}
  double denominator() const override { return totals_.items; }
  /// TRL's names. rewards and logps are means over the answers of their kind.
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
