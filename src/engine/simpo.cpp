#include "simpo.h"

#include "qft/core/error.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace qft::engine {
namespace {

constexpr std::string_view kMetrics[] = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                         "rewards/margins", "logps/chosen",     "logps/rejected"};

}  // namespace

std::span<const std::string_view> SimpoLoss::metrics() const {
  return kMetrics;
}

at::Tensor SimpoLoss::observe_sequences(const model::MicroInput& in, const at::Tensor& logprobs, const at::Tensor& counts,
                                        const at::Tensor& grad) const {
  for (std::size_t i = 1; i < in.item_offsets.size(); ++i)
    require(in.item_offsets[i] - in.item_offsets[i - 1] == 2, "an item of {} sequences is no pair of a chosen and a rejected one",
            in.item_offsets[i] - in.item_offsets[i - 1]);
  const at::Tensor lengths = counts.clamp_min(1.0);  // an answer that was cut off has the mean 0
  const at::Tensor means = (logprobs / lengths).view({-1, 2});
  const at::Tensor chosen = means.select(1, 0), rejected = means.select(1, 1), margins = chosen - rejected;
  const at::Tensor logits = margins * beta_ - gamma_;
  if (grad.defined()) {
    const at::Tensor by_margin = at::sigmoid(-logits) * (-beta_ / pairs_);
    grad.copy_(at::stack({by_margin - ftx_ / pairs_, -by_margin}, 1).view({-1}) / lengths);
  }
  const at::Tensor sums =
      at::stack({chosen * beta_, rejected * beta_, margins.gt(0.0).to(at::kDouble), margins * beta_, chosen, rejected}).sum(1);
  const at::Tensor pairs = at::full_like(sums, static_cast<double>(margins.numel()));
  const at::Tensor loss = -at::log_sigmoid(logits).sum() - chosen.sum() * ftx_;
  return at::cat({loss.view({1}), at::stack({sums, pairs}, 1).view({-1})});
}

}  // namespace qft::engine
