#include "qft/parallel/objective.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <array>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

namespace qft::parallel {

double BatchTotals::at(std::string_view name) const {
  const auto found = named.find(name);
  require(found != named.end(), "the total '{}' of the batch is not known, but the objective reads it", name);
  return found->second;
}

at::Tensor label_counts(const model::MicroInput& in) {
  std::vector<std::int64_t> counts;
  for (std::size_t s = 1; s < in.label_offsets.size(); ++s) counts.push_back(in.label_offsets[s] - in.label_offsets[s - 1]);
  return device::upload(counts, in.tokens.device());
}

namespace {

at::Tensor sums_of(const at::Tensor& values, const at::Tensor& counts) {
  return at::segment_reduce(values.to(at::kDouble), "sum", counts, {}, {}, 0, /*unsafe=*/true);
}

}  // namespace

at::Tensor sequence_sums(const model::MicroInput& in, const at::Tensor& values) {
  return sums_of(values, label_counts(in));
}

void Objective::known_gradient(const model::MicroInput&, const at::Tensor&) const {
  fail("the objective's gradient is not known before the head's forward pass");
}

at::Tensor SequenceObjective::observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor& grad) const {
  const at::Tensor counts = label_counts(in), weights = label_weights(in, counts);
  const at::Tensor policy = logprobs.policy.to(at::kDouble);
  SequenceSums sums{sums_of(weights.defined() ? policy * weights : policy, counts), logprobs.reference, counts.to(at::kDouble)};
  if (logprobs.rows.defined()) sums.rows = sums_of(logprobs.rows.t().contiguous(), counts).t();
  const at::Tensor by_sequence = grad.defined() ? at::empty_like(sums.policy) : at::Tensor();
  const at::Tensor result = observe_sequences(in, sums, by_sequence);
  if (!grad.defined()) return result;
  const at::Tensor by_label = at::repeat_interleave(by_sequence, counts, /*dim=*/0, /*output_size=*/grad.numel());
  grad.copy_(weights.defined() ? by_label * weights : by_label);
  return result;
}

namespace {

constexpr std::array<std::string_view, 2> kWeightedMetrics = {"token/nll", "token/weight"};

}  // namespace

std::span<const std::string_view> TokenMeanLoss::metrics() const {
  return std::span(kWeightedMetrics).first(weighted_ ? kWeightedMetrics.size() : 0);
}

void TokenMeanLoss::known_gradient(const model::MicroInput& in, const at::Tensor& grad) const {
  const at::Tensor weights = in.columns.find(columns::kLabelWeights);
  if (!weights.defined()) {
    grad.fill_(-1.0 / denominator_);
    return;
  }
  grad.copy_(weights).div_(-denominator_);
}

at::Tensor TokenMeanLoss::observe(const model::MicroInput& in, const Logprobs& logprobs, const at::Tensor&) const {
  if (!weighted_) return at::sum(logprobs.policy, at::kDouble).neg_().view({1});
  const at::Tensor nll = logprobs.policy.to(at::kDouble).neg();
  const at::Tensor given = in.columns.find(columns::kLabelWeights), weights = given.defined() ? given : at::ones_like(nll);
  const at::Tensor count = at::full({}, static_cast<double>(nll.numel()), nll.options());
  return at::stack({(nll * weights).sum(), nll.sum(), count, weights.sum(), count});
}

}  // namespace qft::parallel
