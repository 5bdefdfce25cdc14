// The pair loss of reward models (Bradley and Terry 1952; Ouyang et al. 2022, equation 1).
#pragma once

#include "qft/engine/objectives.h"
#include "qft/parallel/objective.h"

namespace qft::engine {

/// Returns the objective of stage rm.
const ObjectiveRow& reward_objective(const config::RunConfig& config);

/// An item is a pair of sequences, the chosen one first; a value head scores both. The loss is the mean over the pairs of -log
/// sigmoid(chosen score - rejected score). LLaMA-Factory: PairwiseTrainer; TRL: RewardTrainer.
class RewardLoss final : public parallel::Objective {
 public:
  explicit RewardLoss(const parallel::BatchTotals& totals) : pairs_(totals.items) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::sequence_level; }
  double denominator() const override { return pairs_; }
  /// accuracy as in LLaMA-Factory: the share of pairs whose chosen answer scores higher.
  std::span<const std::string_view> metrics() const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& scores, const at::Tensor& grad) const override;

 private:
  double pairs_;
};

}  // namespace qft::engine
