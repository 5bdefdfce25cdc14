#include "offloaded_activations.h"

#include "qft/core/error.h"

#include <ATen/ops/empty.h>

namespace qft::parallel {

OffloadedActivations::OffloadedActivations(c10::Device device) : copies_(device::Stream::make(device)), copied_(device) {}

void OffloadedActivations::keep(int layer, const at::Tensor& x) {
  const auto l = static_cast<std::size_t>(layer);
  if (memory_.size() <= l) {
    memory_.resize(l + 1);
    kept_.resize(l + 1);
  }
  if (!memory_[l].defined() || memory_[l].scalar_type() != x.scalar_type() || memory_[l].numel() < x.numel())
    // Use LibTorch's allocator: it does not reuse freed memory before the copies from it are done.
    memory_[l] = at::empty({x.numel()}, x.options().device(at::kCPU).pinned_memory(!x.is_cpu()));
  kept_[l] = memory_[l].narrow(0, 0, x.numel()).view(x.sizes());
  const auto current = device::Stream::current(copies_.device());
  current.wait(copied_);  // the previous copy: its source is overwritten next
  copies_.wait(current);
  const device::StreamGuard beside(copies_);
  kept_[l].copy_(x, /*non_blocking=*/true);
  copied_.record(copies_);
}

void OffloadedActivations::start_fetch(int layer, const at::Tensor& to) {
  const auto l = static_cast<std::size_t>(layer);
  QFT_ASSERT(l < kept_.size() && kept_[l].defined() && kept_[l].sizes() == to.sizes(), "the input of layer {} was not kept",
             layer);
  copies_.wait(device::Stream::current(copies_.device()));
  const device::StreamGuard beside(copies_);
  to.copy_(kept_[l], /*non_blocking=*/true);
  copied_.record(copies_);
  fetching_ = layer;
}

at::Tensor OffloadedActivations::fetch(int layer, const at::Tensor& even, const at::Tensor& odd, bool last) {
  const auto buffer = [&](int l) -> const at::Tensor& { return l % 2 == 0 ? even : odd; };
  if (fetching_ != layer) start_fetch(layer, buffer(layer));
  device::Stream::current(copies_.device()).wait(copied_);
  fetching_ = -1;
  if (!last) start_fetch(layer - 1, buffer(layer - 1));
  return buffer(layer);
}

std::int64_t OffloadedActivations::bytes() const {
  std::int64_t total = 0;
  for (const at::Tensor& t : memory_)
    if (t.defined()) total += static_cast<std::int64_t>(t.nbytes());
  return total;
}

}  // namespace qft::parallel
