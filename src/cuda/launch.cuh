// Launches kernels. Only for *.cu files, which include no LibTorch headers: nvcc would parse them once per chip type.
#pragma once

#include "qft/device/rows.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "launch.h"

namespace qft::cuda {

template <class... Args>
void OnStream::operator()(const device::LaunchShape& shape, void (*kernel)(Args...),
                          const std::type_identity_t<Args>&... args) const {
  if (shape.grid.x == 0) return;  // CUDA treats an empty grid as an error
  kernel<<<shape.grid, shape.block, 0, stream>>>(args...);
  check_launch();
}

}  // namespace qft::cuda
