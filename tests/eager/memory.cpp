#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unistd.h>

#include "device.h"
#include <c10/util/Exception.h>

namespace qft::eager {
namespace {

using Stats = c10::CachingDeviceAllocator::DeviceStats;

std::mutex mutex;
std::map<const void*, std::size_t> pinned;  // bytes by begin
std::map<void*, std::size_t> blocks;
Stats stats;

void* pages(std::size_t bytes) {
  void* data = nullptr;
  return posix_memalign(&data, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), bytes) == 0 ? data : nullptr;
}

void free_data(void* data) {
  const std::lock_guard lock(mutex);
  const auto block = blocks.find(data);
  if (block == blocks.end()) return;
  for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes}) (*stat)[0].decrease(block->second);
  blocks.erase(block);
  std::free(data);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(kType, 0);
    if (bytes == 0) return {nullptr, device};
    const std::lock_guard lock(mutex);
    const auto used = static_cast<std::size_t>(stats.allocated_bytes[0].current);
    void* const data = bytes <= kMemory - used ? pages(bytes) : nullptr;
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "eager: out of memory: ", bytes, " bytes wanted, ", used, " in use");
    blocks[data] = bytes;
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes}) (*stat)[0].increase(bytes);
    return {data, data, &free_data, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_data; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  Stats getDeviceStats(c10::DeviceIndex) override {
    const std::lock_guard lock(mutex);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    const std::lock_guard lock(mutex);
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes}) (*stat)[0].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex) override {
    const std::lock_guard lock(mutex);
    for (auto* stat : {&stats.allocated_bytes, &stats.reserved_bytes}) (*stat)[0].reset_peak();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    const std::lock_guard lock(mutex);
    return {kMemory - static_cast<std::size_t>(stats.allocated_bytes[0].current), kMemory};
  }
};

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : allocate_pinned(bytes);
    TORCH_CHECK(bytes == 0 || data != nullptr, "eager: no ", bytes, " bytes of pinned memory left");
    return {data, data, &free_pinned, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static Allocator all;
  return &all;
}

c10::Allocator* pinned_allocator() {
  static PinnedAllocator all;
  return &all;
}

void* allocate_pinned(std::size_t bytes) {
  void* const data = pages(bytes);
  const std::lock_guard lock(mutex);
  if (data != nullptr) pinned[data] = bytes;
  return data;
}

void free_pinned(void* data) {
  const std::lock_guard lock(mutex);
  pinned.erase(data);
  std::free(data);
}

bool is_pinned(const void* data) {
  const std::lock_guard lock(mutex);
  auto after = pinned.upper_bound(data);
  if (after == pinned.begin()) return false;
  --after;
  return static_cast<const std::byte*>(data) < static_cast<const std::byte*>(after->first) + after->second;
}

}  // namespace qft::eager
