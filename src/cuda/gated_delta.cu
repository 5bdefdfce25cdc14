// Instantiates the gated delta rule's kernels for the types that ops.cpp uses. A separate file, because it takes longest to
// compile.
#include "../ops/gated_delta/gated_delta_cuda.cuh"
#include "launch.cuh"

namespace qft::ops::cuda {

using qft::cuda::OnStream;

#define QFT_DELTA(T)                                                                                        \
  template void launch_delta_forward(const DeltaOperands<T>&, std::span<const DeltaWave>, const OnStream&); \
  template void launch_delta_backward(const DeltaOperands<T>&, std::span<const DeltaWave>, const OnStream&);

QFT_DELTA(float)
QFT_DELTA(__nv_bfloat16)
QFT_DELTA(__half)

}  // namespace qft::ops::cuda
