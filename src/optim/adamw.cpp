#include "qft/optim/adamw.h"

#include <array>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "qft/core/error.h"

#include "cuda/kernels.h"

namespace qft::optim {

AdamW::AdamW(std::vector<FlatParams> params, const AdamWOptions& options, const Precision& precision)
    : params_(std::move(params)), options_(options) {
  std::array<Group, 2> groups;
  groups[1].weight_decay = options.weight_decay;
  for (const FlatParams& p : params_) {
    QFT_ASSERT(p.weights.numel() == p.grads.numel(), "{}: {} weights, {} gradients", p.name, p.weights.numel(),
               p.grads.numel());
    State s;
    s.has_copy = precision.has_master_copy() || p.weights.device() != p.grads.device();
    s.master = s.has_copy ? p.weights.to(p.grads.device(), precision.master) : p.weights;
    s.exp_avg = at::zeros_like(s.master, s.master.options().dtype(precision.state));
    s.exp_avg_sq = at::zeros_like(s.exp_avg);
    s.by_kernel = cuda::can_update(p, precision);
    for (const Segment& segment : p.segments) {
      if (s.by_kernel) break;
      Group& group = groups[segment.decays ? 1 : 0];
      const auto view = [&](const at::Tensor& t) { return t.narrow(0, segment.begin, segment.end - segment.begin); };
      group.params.push_back(view(s.master));
      group.grads.push_back(view(p.grads));
      group.exp_avgs.push_back(view(s.exp_avg));
      group.exp_avg_sqs.push_back(view(s.exp_avg_sq));
      group.steps.push_back(at::full({}, 0.0, at::TensorOptions().dtype(at::kFloat).device(p.grads.device())));
    }
    state_.push_back(std::move(s));
  }
  for (Group& group : groups)
    if (!group.params.empty()) groups_.push_back(std::move(group));
}

void AdamW::step(double learning_rate, double grad_scale) {
  ++steps_;
  for (Group& group : groups_) {
    for (at::Tensor& step : group.steps) step.fill_(static_cast<double>(steps_));
    // Scaled here, not by the kernel's own argument: that one is fp32 and would round fp64 gradients.
    if (grad_scale != 1.0)
      for (at::Tensor& grad : group.grads) grad.mul_(grad_scale);
    at::_fused_adamw_(group.params, group.grads, group.exp_avgs, group.exp_avg_sqs, {}, group.steps, learning_rate,
                      options_.beta1, options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const State& s = state_[i];
    if (!s.by_kernel) {
      publish(i);
      continue;
    }
    for (const Segment& segment : params_[i].segments)
      cuda::update({s.master, params_[i].grads, s.exp_avg, s.exp_avg_sq, s.has_copy ? params_[i].weights : at::Tensor(), segment,
                    options_, learning_rate, grad_scale, steps_});
  }
}

void AdamW::publish(std::size_t i) {
  if (state_[i].has_copy) params_[i].weights.copy_(state_[i].master);
}

void AdamW::publish() {
  for (std::size_t i = 0; i < params_.size(); ++i) publish(i);
}

void AdamW::set_steps(std::int64_t steps) { steps_ = steps; }

std::int64_t AdamW::bytes() const {
  std::int64_t total = 0;
  for (const State& s : state_) {
    if (s.has_copy) total += static_cast<std::int64_t>(s.master.nbytes());
    total += static_cast<std::int64_t>(s.exp_avg.nbytes() + s.exp_avg_sq.nbytes());
  }
  return total;
}

}  // namespace qft::optim
