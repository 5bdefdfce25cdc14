// Copies host values to a device.
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

}  // namespace qft::device
