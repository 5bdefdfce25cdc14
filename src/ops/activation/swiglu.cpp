#include "qft/ops/swiglu.h"

#include "qft/core/error.h"
#include "qft/ops/generic.h"

#include "../common/device_kernels.h"
#include "../common/tensors_cpu.h"

namespace qft::ops {

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

}  // namespace qft::ops
