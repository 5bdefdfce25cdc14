#include "qft/parallel/objective.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

namespace qft::parallel {

void TokenMeanLoss::grad_logprobs(int, const model::MicroInput&, const at::Tensor& grad) { grad.fill_(-1.0 / denominator_); }

void TokenMeanLoss::observe(int, const model::MicroInput&, const at::Tensor& logprobs) {
  sums_.push_back(at::sum(logprobs, at::kDouble));
}

std::vector<double> TokenMeanLoss::losses() const {
  if (sums_.empty()) return {};
  const at::Tensor all = at::stack(sums_).cpu();
  const double* values = all.const_data_ptr<double>();
  std::vector<double> losses(values, values + sums_.size());
  for (double& loss : losses) loss /= -denominator_;
  return losses;
}

}  // namespace qft::parallel
