// Queues kernels on a CUDA stream.
#pragma once

#include <cuda_runtime_api.h>
#include <type_traits>

namespace qft::device {
struct LaunchShape;
}

namespace qft::cuda {

/// Queues a kernel. Throws c10::Error if the launch fails.
struct OnStream {
  cudaStream_t stream;

  template <class... Args>
  void operator()(const device::LaunchShape& shape, void (*kernel)(Args...), const std::type_identity_t<Args>&... args) const;
};

OnStream on_current_stream();  // in backend.cpp, because kernel files do not include LibTorch headers
void check_launch();

}  // namespace qft::cuda
