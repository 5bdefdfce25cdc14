#include "dispatch.cuh"
#include "embedding.cuh"
#include "kernels.h"

namespace qft::ops::cuda {

bool embedding_backward(const at::Tensor& tokens, const at::Tensor& gy, const at::Tensor& gweight) {
  bool done = false;
  with_kernel_type(gy, [&]<class T>() {
    done = with_grad_type<T>(gweight, [&]<class G>() {
      launch_embedding_backward(embedding_backward_args<T, G>(tokens, gy, gweight), device::OnStream());
    });
  });
  return done;
}

}  // namespace qft::ops::cuda
