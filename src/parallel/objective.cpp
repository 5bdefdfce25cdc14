#include "qft/parallel/objective.h"

#include <ATen/ops/sum.h>

namespace qft::parallel {

void TokenMeanLoss::grad_logprobs(int, const model::MicroInput&, const at::Tensor& grad) { grad.fill_(-1.0 / denominator_); }

void TokenMeanLoss::observe(int, const model::MicroInput&, const at::Tensor& logprobs) {
  const at::Tensor part = at::sum(logprobs, at::kDouble);
  sum_ = sum_.defined() ? sum_.add_(part) : part;
}

double TokenMeanLoss::loss_sum() const { return sum_.defined() ? -sum_.item<double>() : 0.0; }

double TokenMeanLoss::loss() const { return loss_sum() / denominator_; }

}  // namespace qft::parallel
