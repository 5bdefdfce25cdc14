// SimPO (Meng et al. 2024, equation 6): preference pairs, without a reference model.
#pragma once

#include "qft/parallel/objective.h"

namespace qft::engine {

/// An item is a pair of sequences, the chosen one first. With m the mean log-probability of a sequence's labels:
///   loss = mean over the pairs of -log sigmoid(beta (m(chosen) - m(rejected)) - gamma) - ftx m(chosen)
/// Metrics by TRL's names; a sequence's reward is beta m.
class SimpoLoss final : public parallel::SequenceObjective {
 public:
  SimpoLoss(double beta, double gamma, double ftx, const parallel::BatchTotals& totals)
      : beta_(beta), gamma_(gamma), ftx_(ftx), pairs_(totals.items) {}
  double denominator() const override { return pairs_; }
  std::span<const std::string_view> metrics() const override;

 protected:
  at::Tensor observe_sequences(const model::MicroInput& in, const at::Tensor& logprobs, const at::Tensor& counts,
                               const at::Tensor& grad) const override;

 private:
  double beta_, gamma_, ftx_, pairs_;
};

}  // namespace qft::engine
