// Copies host values to a device, and host memory for such copies.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::device {

/// Returns a copy [values.size()] on `device`; `values` may be freed when this returns. On devices other than the CPU it copies
/// through pinned memory, in order on the current stream, without waiting for it.
at::Tensor upload(std::span<const std::int32_t> values, c10::Device device);
at::Tensor upload(std::span<const std::int64_t> values, c10::Device device);
at::Tensor upload(std::span<const double> values, c10::Device device);
/// Copies a contiguous host tensor into `to`, of the same shape and type.
void upload(const at::Tensor& host, const at::Tensor& to);

/// Returns an uninitialised tensor: pinned for `device`, plain memory for the CPU. It has exactly the requested size; LibTorch's
/// own pinned memory rounds up to the next power of two. Pinning takes milliseconds, and freeing waits for the device, so use it
/// for long-lived memory. Throws Error if the memory cannot be allocated.
at::Tensor host_tensor(at::IntArrayRef sizes, at::ScalarType dtype, c10::Device device);

}  // namespace qft::device
