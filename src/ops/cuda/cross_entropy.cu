#include "cross_entropy.cuh"
#include "dispatch.cuh"
#include "kernels.h"

namespace qft::ops::cuda {

bool cross_entropy_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& grad_logprobs,
                        const at::Tensor& logprobs) {
  return with_kernel_type(logits, [&]<class T>() {
    launch_cross_entropy(cross_entropy_args<T>(logits, targets, grad_logprobs, logprobs), logits.size(0), device::OnStream());
  });
}

}  // namespace qft::ops::cuda
