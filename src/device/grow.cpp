#include "qft/device/grow.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <sys/mman.h>
#include <unistd.h>

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

/// Gives a host buffer's pages back to the system before it is freed: a larger buffer may not find room in its place, which then
/// stays a hole in the heap. Does nothing if another tensor still has the memory.
void drop_pages(const at::Tensor& buffer) {
  if (buffer.storage().use_count() > 1) return;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto data = reinterpret_cast<std::uintptr_t>(buffer.data_ptr());
  const std::uintptr_t begin = (data + page - 1) / page * page,
                       end = (data + static_cast<std::uintptr_t>(buffer.numel())) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

void grow(at::Tensor& buffer, std::int64_t bytes, c10::Device device) {
  if (buffer.defined() && buffer.numel() >= bytes) return;
  const bool goes = buffer.defined() && buffer.numel() >= kShared;
  if (goes && device.is_cpu()) drop_pages(buffer);
  buffer = at::Tensor();
  if (goes && !device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
  buffer = at::empty({room_for(bytes, device)}, at::TensorOptions(at::kByte).device(device));
}

}  // namespace qft::device
