#include "qft/optim/optimizer.h"

#include "qft/core/error.h"
#include "qft/device/host_tensor.h"

#include <utility>

#include <ATen/ops/zeros_like.h>

namespace qft::optim {

Optimizer::Optimizer(const RuleSpec& rule, std::vector<FlatParams> params, const Hyper& hyper, const Precision& precision)
    : spec_(rule), rule_(rule.make(hyper)), weight_decay_(hyper.weight_decay), params_(std::move(params)) {
  for (const FlatParams& p : params_) {
    QFT_ASSERT(p.weights.numel() == p.grads.numel(), "{}: {} weights, {} gradients", p.name, p.weights.numel(), p.grads.numel());
    const bool apart = p.weights.device() != p.grads.device();
    Buffer b{{}, {}, precision.has_master_copy() || apart, {}, device::Event(p.weights.device())};
    b.master = b.has_copy ? p.weights.to(p.grads.device(), precision.master) : p.weights;
    if (apart && p.grads.is_cpu())
      b.staging = device::host_tensor(p.weights.sizes(), p.weights.scalar_type(), p.weights.device());
    for (std::size_t s = 0; s < rule.state.size(); ++s)
      b.state.push_back(at::zeros_like(b.master, b.master.options().dtype(precision.state)));
    buffers_.push_back(std::move(b));
  }
}

void Optimizer::step(double learning_rate, double grad_scale) {
  ++steps_;
  for (std::size_t i = 0; i < params_.size(); ++i) {
    bool published = true;
    buffers_[i].uploaded.synchronize();  // of the step before: its source is written again
    for (const Segment& segment : params_[i].segments) published &= update(i, segment, learning_rate, grad_scale);
    published ? upload(i) : publish(i);
  }
}

bool Optimizer::update(std::size_t i, const Segment& segment, double learning_rate, double grad_scale) {
  const auto part = [&](const at::Tensor& t) { return t.narrow(0, segment.begin, segment.end - segment.begin); };
  const Buffer& b = buffers_[i];
  Update u;
  u.master = part(b.master);
  u.grads = part(params_[i].grads);
  for (const at::Tensor& s : b.state) u.state.push_back(part(s));
  if (b.has_copy) u.copy = part(b.copy_in(params_[i].weights));
  u.learning_rate = learning_rate * segment.lr_factor;
  u.weight_decay = weight_decay_ * segment.decay_factor;
  u.grad_scale = grad_scale;
  u.step = steps_;
  return rule_->step(u);
}

void Optimizer::publish(std::size_t i) {
  const Buffer& b = buffers_[i];
  if (!b.has_copy) return;
  b.uploaded.synchronize();
  b.copy_in(params_[i].weights).copy_(b.master);
  upload(i);
}

void Optimizer::upload(std::size_t i) {
  Buffer& b = buffers_[i];
  if (!b.staging.defined()) return;
  params_[i].weights.copy_(b.staging, /*non_blocking=*/true);
  b.uploaded.record(device::Stream::current(params_[i].weights.device()));
}

void Optimizer::publish() {
  for (std::size_t i = 0; i < params_.size(); ++i) publish(i);
}

std::int64_t Optimizer::bytes() const {
  std::int64_t total = 0;
  for (const Buffer& b : buffers_) {
    if (b.has_copy) total += static_cast<std::int64_t>(b.master.nbytes());
    for (const at::Tensor& s : b.state) total += static_cast<std::int64_t>(s.nbytes());
  }
  return total;
}

}  // namespace qft::optim
