#include "qft/device/grow.h"

#include <algorithm>
#include <bit>

#include <ATen/ops/empty.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace qft::device {
namespace {

constexpr std::int64_t kLeast = 512;       // bytes: granularity of LibTorch's allocators
constexpr std::int64_t kShared = 1 << 20;  // smaller blocks share their memory with others, so freeing one frees no memory

std::int64_t room_for(std::int64_t bytes, c10::Device device) {
  const auto size = static_cast<std::uint64_t>(std::max(bytes, kLeast));
  if (device.is_cpu()) return static_cast<std::int64_t>(std::bit_ceil(size));
  const std::uint64_t step = std::max<std::uint64_t>(std::bit_floor(size) / 32, kLeast);
  return static_cast<std::int64_t>((size + step - 1) / step * step);
}

}  // namespace

void grow(at::Tensor& buffer, std::int64_t bytes, c10::Device device) {
  if (buffer.defined() && buffer.numel() >= bytes) return;
  const bool goes = buffer.defined() && buffer.numel() >= kShared;
  buffer = at::Tensor();
  if (goes && !device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
  buffer = at::empty({room_for(bytes, device)}, at::TensorOptions(at::kByte).device(device));
}

}  // namespace qft::device
