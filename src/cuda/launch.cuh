// Kernels onto a CUDA stream. For *.cu only.
#pragma once

#include "qft/device/rows.cuh"

#include <type_traits>

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

namespace qft::cuda {

/// Queues a kernel on the current stream. Throws c10::Error where it cannot be started.
struct OnStream {
  template <class... Args>
  void operator()(const device::LaunchShape& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) const {
    if (shape.grid.x == 0) return;  // nothing to do, which CUDA takes for an error
    kernel<<<shape.grid, shape.block, 0, c10::cuda::getCurrentCUDAStream()>>>(args...);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
};

}  // namespace qft::cuda
