// Values of the host onto a device.
#pragma once

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::device {

/// A copy [values.size()] on `device`; `values` may go when this returns. Elsewhere than on the CPU: by way of pinned memory, in
/// order on the current stream, without waiting for it.
at::Tensor upload(std::span<const std::int32_t> values, c10::Device device);
at::Tensor upload(std::span<const std::int64_t> values, c10::Device device);
at::Tensor upload(std::span<const double> values, c10::Device device);
/// The same of a contiguous tensor of the host into one of its shape and type.
void upload(const at::Tensor& host, const at::Tensor& to);

}  // namespace qft::device
