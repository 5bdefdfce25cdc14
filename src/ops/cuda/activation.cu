#include "activation.cuh"
#include "dispatch.cuh"
#include "kernels.h"

namespace qft::ops::cuda {

bool rope(const at::Tensor& x, const at::Tensor& positions, const RopeTable& table, RopeDirection direction) {
  return with_kernel_type(
      x, [&]<class T>() { launch_rope(rope_args<T>(x, positions, table, direction), x.size(0), device::OnStream()); });
}

bool swiglu_forward(const at::Tensor& gate_up, const at::Tensor& act) {
  return with_kernel_type(
      act, [&]<class T>() { launch_swiglu_forward(swiglu_forward_args<T>(gate_up, act), act.size(0), device::OnStream()); });
}

bool swiglu_backward(const at::Tensor& gate_up, const at::Tensor& gact, const at::Tensor& ggate_up, const at::Tensor& act) {
  return with_kernel_type(gact, [&]<class T>() {
    launch_swiglu_backward(swiglu_backward_args<T>(gate_up, gact, ggate_up, act), gact.size(0), device::OnStream());
  });
}

}  // namespace qft::ops::cuda
