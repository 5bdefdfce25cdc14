// How a kernel is launched. For *.cu only, which see no header of LibTorch: nvcc would read them once for each kind of chip.
#pragma once

#include "qft/device/rows.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "launch.h"

namespace qft::cuda {

template <class... Args>
void OnStream::operator()(const device::LaunchShape& shape, void (*kernel)(Args...),
                          const std::type_identity_t<Args>&... args) const {
  if (shape.grid.x == 0) return;  // nothing to do, which CUDA takes for an error
  kernel<<<shape.grid, shape.block, 0, stream>>>(args...);
  check_launch();
}

}  // namespace qft::cuda
