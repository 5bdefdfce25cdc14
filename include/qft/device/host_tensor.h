// Host memory that a device copies from and to.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Uninitialised. Pinned for `device`, and as large as asked for: LibTorch's own pinned memory takes the next power of two. For
/// the CPU plain memory. Pinning takes milliseconds, and the end waits for the device: for what is kept. Throws Error if it
/// cannot be had.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);

}  // namespace qft::device
