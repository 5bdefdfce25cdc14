// Memory that grows with what is asked of it.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace qft::device {

/// Makes `buffer`, a byte tensor on `device` or undefined, hold at least `bytes`; what it held is lost where it moves. The old
/// memory goes first, to the driver too: LibTorch would keep it beside the new one. There is room for a little more, so that what
/// grows bit by bit moves rarely: on the host, which allocates a page when it is first touched, up to the next power of two;
/// elsewhere at most a thirty-second.
void grow(at::Tensor& buffer, std::int64_t bytes, c10::Device device);

}  // namespace qft::device
