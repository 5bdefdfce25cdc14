#include "reward.h"

#include "preference.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>

namespace qft::engine {
namespace {

constexpr std::string_view kRewardMetrics[] = {"accuracy", "rewards/chosen", "rewards/rejected", "rewards/margins"};

constexpr ObjectiveRow kRewardObjective = {
    .name = "rm",
    .kind = parallel::ObjectiveKind::sequence_level,
    .make = [](const config::RunConfig&, const parallel::BatchTotals& totals) -> std::unique_ptr<parallel::Objective> {
      return std::make_unique<RewardLoss>(totals);
    },
    .check_items = check_pairs};

}  // namespace

const ObjectiveRow& reward_objective(const config::RunConfig&) {
  return kRewardObjective;
}

std::span<const std::string_view> RewardLoss::metrics() const {
  return kRewardMetrics;
}

at::Tensor RewardLoss::observe(const model::MicroInput& in, const parallel::Logprobs& scores, const at::Tensor& grad) const {
  require_pairs(in);
  const at::Tensor pairs = scores.policy.to(at::kDouble).view({-1, 2});
  const at::Tensor chosen = pairs.select(1, 0), rejected = pairs.select(1, 1), margins = chosen - rejected;
  if (grad.defined()) {
    const at::Tensor by_chosen = at::sigmoid(-margins) * (-1.0 / pairs_);
    grad.copy_(at::stack({by_chosen, -by_chosen}, 1).view({-1}));
  }
  const at::Tensor totals = at::stack({margins.gt(0.0).to(at::kDouble), chosen, rejected, margins}).sum(1);
  const at::Tensor counts = at::full_like(totals, static_cast<double>(margins.numel()));
  return at::cat({at::log_sigmoid(margins).sum().neg().view({1}), at::stack({totals, counts}, 1).view({-1})});
}

}  // namespace qft::engine
