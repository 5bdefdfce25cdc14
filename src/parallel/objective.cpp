#include "qft/parallel/objective.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/sum.h>

namespace qft::parallel {
namespace {

/// How many labels each sequence has: int64 [S].
at::Tensor label_counts(const model::MicroInput& in) {
  std::vector<std::int64_t> counts;
  for (std::size_t s = 1; s < in.label_offsets.size(); ++s) counts.push_back(in.label_offsets[s] - in.label_offsets[s - 1]);
  return device::upload(counts, in.tokens.device());
}

}  // namespace

void SequenceObjective::known_gradient(const model::MicroInput&, const at::Tensor&) const {
  fail("the gradient of a sequence's log-probability is not known before it");
}

at::Tensor SequenceObjective::observe(const model::MicroInput& in, const at::Tensor& logprobs, const at::Tensor& grad) const {
  const at::Tensor counts = label_counts(in);
  const at::Tensor sums = at::segment_reduce(logprobs.to(at::kDouble), "sum", counts, {}, {}, 0, /*unsafe=*/true);
  const at::Tensor by_sequence = grad.defined() ? at::empty_like(sums) : at::Tensor();
  const at::Tensor result = observe_sequences(in, sums, counts.to(at::kDouble), by_sequence);
  if (grad.defined()) grad.copy_(at::repeat_interleave(by_sequence, counts, /*dim=*/0, /*output_size=*/grad.numel()));
  return result;
}

void TokenMeanLoss::known_gradient(const model::MicroInput&, const at::Tensor& grad) const {
  grad.fill_(-1.0 / denominator_);
}

at::Tensor TokenMeanLoss::observe(const model::MicroInput&, const at::Tensor& logprobs, const at::Tensor&) const {
  return at::sum(logprobs, at::kDouble).neg_().view({1});
}

}  // namespace qft::parallel
