// CPU builds have no such kernels.
#include "qft/core/error.h"

#include "kernels.h"

namespace qft::optim::cuda {

bool can_update(const Update&) {
  return false;
}
void adamw(const Update&, const Hyper&) {
  fail("this build has no CUDA kernels: build with -DQFT_CUDA=ON");
}
void lion(const Update&, const Hyper&) {
  fail("this build has no CUDA kernels: build with -DQFT_CUDA=ON");
}
at::Tensor square_parts(const at::Tensor&) {
  return {};
}

}  // namespace qft::optim::cuda
