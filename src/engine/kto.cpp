#include "kto.h"

#include "qft/core/error.h"
#include "qft/device/upload.h"

#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace qft::engine {
namespace {

using at::Tensor;

constexpr std::string_view kKtoMetrics[] = {"rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected", "kl"};

}  // namespace

std::span<const std::string_view> KtoLoss::metrics() const {
  return kKtoMetrics;
}

double KtoLoss::summarise(std::map<std::string, double>& metrics) const {
  const auto chosen = metrics.find("rewards/chosen"), rejected = metrics.find("rewards/rejected");
  if (chosen != metrics.end() && rejected != metrics.end()) metrics["rewards/margins"] = chosen->second - rejected->second;
  return 0.0;
}

Tensor KtoLoss::observe_sequences(const model::MicroInput& in, const parallel::SequenceSums& sums, const Tensor& grad) const {
  const auto sequences = static_cast<std::size_t>(sums.policy.numel());
  require(in.desirable.size() == sequences, "{} sequences, but {} labels that say whether an answer is desirable", sequences,
          in.desirable.size());
  require(sums.reference.defined(), "stage kto: the reference is missing");
  const Tensor desirable =
      device::upload(std::vector<std::int64_t>(in.desirable.begin(), in.desirable.end()), sums.policy.device()).to(at::kDouble);
  const Tensor sign = desirable * 2.0 - 1.0, undesirable = 1.0 - desirable;
  const Tensor weight = desirable * options_.chosen_weight + undesirable * options_.rejected_weight;
  const Tensor ratio = sums.policy - sums.reference, reward = ratio * options_.beta;
  const Tensor gain = at::sigmoid(sign * (ratio - totals_.kl) * options_.beta);
  const Tensor lengths = sums.counts.clamp_min(1.0);  // the mean over no labels is 0: the answer was cut off
  const double ftx =
      totals_.desirable > 0 ? options_.ftx * (totals_.items / totals_.desirable) * (totals_.items / totals_.desirable) : 0.0;
  const Tensor by_mean = desirable * -ftx;
  if (grad.defined()) grad.copy_((weight * sign * gain * (gain - 1.0) * options_.beta + by_mean / lengths) / totals_.items);
  const Tensor loss = (weight * (1.0 - gain) + by_mean * (sums.policy / lengths)).sum();
  const Tensor all = at::ones_like(desirable);
  const Tensor totals =
      at::stack({reward * desirable, reward * undesirable, sums.policy * desirable, sums.policy * undesirable, all * totals_.kl})
          .sum(1);
  const Tensor counts = at::stack({desirable, undesirable, desirable, undesirable, all}).sum(1);
  return at::cat({loss.view({1}), at::stack({totals, counts}, 1).view({-1})});
}

}  // namespace qft::engine
