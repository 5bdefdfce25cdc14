#include "qft/core/units.h"
#include "qft/device/device.h"

#include <cuda_runtime_api.h>

#include "cuda_api.h"
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

namespace qft::device {

bool built_with_cuda() {
  return true;
}

namespace cuda {

namespace {

const c10::CachingDeviceAllocator::Stat& live_bytes(const c10::CachingDeviceAllocator::DeviceStats& stats) {
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

int device_count() {
  return c10::cuda::device_count();
}

void set_device(int index) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
}

std::string describe(int index) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return fmt::format("{}, {}, compute capability {}.{}", properties.name,
                     format_bytes(static_cast<double>(properties.totalGlobalMem)), properties.major, properties.minor);
}

std::string library_version() {
  // The compiled one: asking the library fails where there is no driver.
  return fmt::format("CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
}

MemoryUse memory_use(int index) {
  MemoryUse use;
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  use.total = static_cast<std::int64_t>(properties.totalGlobalMem);
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  if (!allocator->initialized()) return use;
  const auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(index));
  use.current = live_bytes(stats).current;
  use.peak = live_bytes(stats).peak;
  return use;
}

void reset_peak(int index) {
  auto* allocator = c10::cuda::CUDACachingAllocator::get();
  if (allocator->initialized()) allocator->resetPeakStats(static_cast<c10::DeviceIndex>(index));
}

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocDefault) != cudaSuccess) {
    cudaGetLastError();  // clears it: the caller reports the failure
    return nullptr;
  }
  return data;
}

void free_pinned(void* data) {
  C10_CUDA_CHECK_WARN(cudaFreeHost(data));
}

void refuse_waits(bool refuse) {
  using c10::cuda::SyncDebugMode;
  c10::cuda::warning_state().set_sync_debug_mode(refuse ? SyncDebugMode::L_ERROR : SyncDebugMode::L_DISABLED);
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace cuda
}  // namespace qft::device
