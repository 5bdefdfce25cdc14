// Instantiates the optim kernels for the element types that optim.cpp uses.
#include "../optim/cuda/adamw.cuh"
#include "../optim/cuda/lion.cuh"
#include "../optim/cuda/square_sum.cuh"
#include "../optim/cuda/update.cuh"
#include "launch.cuh"

namespace qft::optim::cuda {

using qft::cuda::OnStream;

#define QFT_UPDATES(P, W)                                                                           \
  template void launch_update(const UpdateBuffers<P, W, 2>&, const AdamWElement&, const OnStream&); \
  template void launch_update(const UpdateBuffers<P, W, 1>&, const LionElement&, const OnStream&);

QFT_UPDATES(float, float)
QFT_UPDATES(float, __nv_bfloat16)
QFT_UPDATES(float, __half)
QFT_UPDATES(__nv_bfloat16, __nv_bfloat16)

template void launch_square_sum(const float*, std::int64_t, double*, const OnStream&);
template void launch_square_sum(const __nv_bfloat16*, std::int64_t, double*, const OnStream&);

}  // namespace qft::optim::cuda
