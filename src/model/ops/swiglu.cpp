#include "qft/model/ops/swiglu.h"

#include "qft/core/error.h"
#include "qft/model/ops/generic.h"

#include "cpu/tensors.h"

namespace qft::model::ops {

void swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act) {
  QFT_ASSERT(gate_up.size(1) == 2 * act.size(1), "gate_up has {} columns, act {}", gate_up.size(1),
             act.size(1));
  const bool done = cpu::with_kernel_type(act, [&]<class T>() {
    const auto kernels = cpu::activation_kernels<T>();
    cpu::for_rows(act.size(0), act.size(1), [&](std::int64_t begin, std::int64_t end) {
      kernels.swiglu_forward(cpu::const_data<T>(gate_up), cpu::data<T>(act), act.size(1), begin, end);
    });
  });
  if (!done) generic::swiglu_forward(gate_up, act);
}

void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up,
                     const at::Tensor& act) {
  QFT_ASSERT(gate_up.size(1) == 2 * gact.size(1), "gate_up has {} columns, gact {}", gate_up.size(1),
             gact.size(1));
  const bool done = cpu::with_kernel_type(gact, [&]<class T>() {
    const auto kernels = cpu::activation_kernels<T>();
    cpu::for_rows(gact.size(0), gact.size(1), [&](std::int64_t begin, std::int64_t end) {
      kernels.swiglu_backward(cpu::const_data<T>(gate_up), cpu::const_data<T>(gact), cpu::data<T>(ggate_up),
                              cpu::data<T>(act), gact.size(1), begin, end);
    });
  });
  if (!done) generic::swiglu_backward(gate_up, gact, ggate_up, act);
}

}  // namespace qft::model::ops
