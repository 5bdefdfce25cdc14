// Host memory for copies to and from a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Returns an uninitialised tensor: pinned for `device`, plain memory for the CPU. It has exactly the requested size; LibTorch's
/// own pinned memory rounds up to the next power of two. Pinning takes milliseconds, and freeing waits for the device, so use it
/// for long-lived memory. Throws Error if the memory cannot be allocated.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);

}  // namespace qft::device
