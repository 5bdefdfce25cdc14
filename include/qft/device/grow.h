// Memory that grows with demand.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace qft::device {

/// Makes `buffer`, a byte tensor on `device` or undefined, hold at least `bytes`. Its contents are lost if it moves. The old
/// memory is freed first, also to the driver or the system, because LibTorch or the heap would keep it beside the new memory.
/// Allocates some spare room, so that a slowly growing buffer moves rarely: on the host, where a page is allocated at first
/// touch, up to the next power of two; elsewhere at most a thirty-second more.
void grow(at::Tensor& buffer, std::int64_t bytes, c10::Device device);

}  // namespace qft::device
