#include "qft/ops/activation.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/sigmoid.h>

namespace qft::ops {
namespace {

at::Tensor by_heads(const at::Tensor& rows, const at::Tensor& gate) {
  QFT_ASSERT(gate.dim() == 3 && rows.size(1) == gate.size(1) * gate.size(2), "{} columns, but gates for {} heads of size {}",
             rows.size(1), gate.size(1), gate.size(2));
  return rows.unflatten(1, {gate.size(1), gate.size(2)});
}

}  // namespace

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act) {
  QFT_ASSERT(gate_up.size(1) == 2 * act.size(1), "gate_up has {} columns, act {}", gate_up.size(1), act.size(1));
  const bool done = cpu::with_kernel_type(act, [&]<class T>() {
    const auto kernels = cpu::swiglu_kernels<T>();
    const SwigluForward<T> args = swiglu_forward_args<T>(gate_up, act);
    cpu::for_rows(act.size(0), act.size(1), [&](std::int64_t begin, std::int64_t end) { kernels.forward(args, begin, end); });
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(act);
  if (kernels == nullptr || !kernels->swiglu_forward(gate_up, act)) generic::swiglu_forward(gate_up, act);
}

void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act) {
  QFT_ASSERT(gate_up.size(1) == 2 * gact.size(1), "gate_up has {} columns, gact {}", gate_up.size(1), gact.size(1));
  const bool done = cpu::with_kernel_type(gact, [&]<class T>() {
    const auto kernels = cpu::swiglu_kernels<T>();
    const SwigluBackward<T> args = swiglu_backward_args<T>(gate_up, gact, ggate_up, act);
    cpu::for_rows(gact.size(0), gact.size(1), [&](std::int64_t begin, std::int64_t end) { kernels.backward(args, begin, end); });
  });
  if (done) return;
  const DeviceKernels* kernels = device_kernels(gact);
  if (kernels == nullptr || !kernels->swiglu_backward(gate_up, gact, ggate_up, act))
    generic::swiglu_backward(gate_up, gact, ggate_up, act);
}

void squared_relu_forward(const at::Tensor& x, const at::Tensor& act) {
  QFT_ASSERT(x.sizes() == act.sizes(), "x has {} values, act {}", x.numel(), act.numel());
  at::clamp_min_out(const_cast<at::Tensor&>(act), x, 0);
  act.square_();
}

void squared_relu_backward(const at::Tensor& x, const at::Tensor& gact, const at::Tensor& gx) {
  QFT_ASSERT(x.sizes() == gact.sizes() && x.sizes() == gx.sizes(), "x has {} values, gact {}, gx {}", x.numel(), gact.numel(),
             gx.numel());
  at::clamp_min_out(const_cast<at::Tensor&>(gx), x, 0);
  gx.mul_(2).mul_(gact);  // a factor of 2 is exact
}

void head_gate_forward(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& y) {
  at::Tensor out = by_heads(y, gate);
  at::mul_out(out, by_heads(x, gate), at::sigmoid(gate));
}

void head_gate_backward(const at::Tensor& gy, const at::Tensor& x, const at::Tensor& gate, const at::Tensor& ggate) {
  const at::Tensor s = at::sigmoid(gate), g = by_heads(gy, gate);
  ggate.copy_(g * by_heads(x, gate) * (s * (1 - s)));
  g.mul_(s);
}

std::int64_t head_gate_scratch_bytes(std::int64_t tokens, std::int64_t columns, at::ScalarType dtype, bool backward) {
  const std::int64_t tensors = backward ? 5 : 1;
  return tensors * tokens * columns * static_cast<std::int64_t>(c10::elementSize(dtype));
}

}  // namespace qft::ops
