// A reward model's loss of pairs (Bradley and Terry 1952; Ouyang et al. 2022, equation 1).
#pragma once

#include "qft/parallel/objective.h"

namespace qft::engine {

/// An item is a pair, the chosen answer's sequence and the rejected one's, whose scores a value head gives. The loss is the mean
/// over the pairs of -log sigmoid(chosen score - rejected score). LLaMA-Factory: PairwiseTrainer; TRL: RewardTrainer.
class RewardLoss final : public parallel::Objective {
 public:
  explicit RewardLoss(const parallel::BatchTotals& totals) : pairs_(totals.items) {}
  parallel::ObjectiveKind kind() const override { return parallel::ObjectiveKind::sequence_level; }
  double denominator() const override { return pairs_; }
  /// accuracy is LLaMA-Factory's: the share of the pairs whose chosen answer has the higher score.
  std::span<const std::string_view> metrics() const override;
  void known_gradient(const model::MicroInput& in, const at::Tensor& grad) const override;
  at::Tensor observe(const model::MicroInput& in, const parallel::Logprobs& scores, const at::Tensor& grad) const override;

 private:
  double pairs_;
};

}  // namespace qft::engine
