// CPU builds have no such kernels.
#include "qft/core/error.h"

#include "kernels.h"

namespace qft::optim::cuda {

bool can_update(const FlatParams&, const Precision&) { return false; }
void update(const Update&) { fail("this build has no CUDA kernels: build with -DQFT_CUDA=ON"); }
at::Tensor square_parts(const at::Tensor&) { return {}; }

}  // namespace qft::optim::cuda
