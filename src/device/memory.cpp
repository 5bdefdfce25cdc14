#include "qft/device/memory.h"

#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/device/backends.h"
#include "qft/device/stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <malloc.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "memory_limits.h"
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

namespace qft::device {

namespace {

// Returns the value of "Key:   123 kB" in a /proc file, in bytes; 0 if it is missing.
std::int64_t proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ':') {
      return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

/// Returns the part of `available` that the job's limits leave. If the use of a limit is not counted, assumes that `processes`
/// processes of this size share it.
std::int64_t left_of_job(std::int64_t available, int processes) {
  const std::int64_t own = host_memory().current * processes;
  for (const JobLimit& limit : job_limits()) available = std::min(available, limit.bytes - limit.used.value_or(own));
  return std::max<std::int64_t>(available, 0);
}

/// Returns the total over all block sizes.
const c10::CachingAllocator::Stat& total(const c10::CachingAllocator::StatArray& of) {
  return of[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

MemoryUse memory_of(c10::Device device) {
  MemoryUse use;
  use.total = facts_of(device).memory;
  auto* allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) return use;
  const auto stats = allocator->getDeviceStats(device.index());
  use.current = total(stats.allocated_bytes).current;
  use.peak = total(stats.allocated_bytes).peak;
  return use;
}

/// Returns the driver's free memory, regardless of who took the rest (contexts, NCCL, other processes), plus unused memory in
/// LibTorch's allocator. Unified memory is the system's: its driver counts file caches as used, although the kernel would free
/// them.
std::int64_t device_memory_left(c10::Device device, int sharers) {
  auto* allocator = c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) at::empty({1}, at::TensorOptions(device).dtype(at::kByte));  // creates the context
  const auto stats = allocator->getDeviceStats(device.index());
  const DeviceFacts& facts = facts_of(device);
  const std::int64_t left = facts.unified ? std::min(facts.memory - total(stats.reserved_bytes).current,
                                                     left_of_job(proc_value("/proc/meminfo", "MemAvailable"), sharers))
                                          : static_cast<std::int64_t>(allocator->getMemoryInfo(device.index()).first);
  return left / sharers + total(stats.reserved_bytes).current - total(stats.allocated_bytes).current;
}

}  // namespace

MemoryUse host_memory() {
  constexpr const char* kStatus = "/proc/self/status";
  MemoryUse use;
  use.current = proc_value(kStatus, "RssAnon") + proc_value(kStatus, "RssShmem");
  use.peak = std::max(proc_value(kStatus, "VmHWM") - proc_value(kStatus, "RssFile"), use.current);
  use.total = host_memory_limit().bytes;
  return use;
}

HostLimit host_memory_limit() {
  HostLimit least{proc_value("/proc/meminfo", "MemTotal"), ""};
  for (JobLimit& limit : job_limits())
    if (limit.bytes < least.bytes) least = {limit.bytes, std::move(limit.source)};
  return least;
}

std::int64_t host_memory_available() {
  return left_of_job(proc_value("/proc/meminfo", "MemAvailable"), 1);
}

std::int64_t memory_left(c10::Device device, int sharers) {
  sharers = std::max(sharers, 1);
  if (!device.is_cpu()) return device_memory_left(device, sharers);
  std::int64_t left = left_of_job(proc_value("/proc/meminfo", "MemAvailable"), sharers) / sharers;
  for (const auto& [resource, used] : {std::pair{RLIMIT_DATA, "VmData"}, {RLIMIT_AS, "VmSize"}}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) continue;
    // These limits count reserved but untouched memory and the heap's holes: leave an eighth for them.
    left = std::min(left, (static_cast<std::int64_t>(limit.rlim_cur) - proc_value("/proc/self/status", used)) / 8 * 7);
  }
  return std::max<std::int64_t>(left, 0);
}

MemoryUse memory_use(c10::Device device) {
  return device.is_cpu() ? host_memory() : memory_of(device);
}

void release_unused() {
  malloc_trim(0);
}

void reset_peak(c10::Device device) {
  if (device.is_cpu()) {
    std::ofstream("/proc/self/clear_refs") << "5";
  } else if (auto* allocator = c10::getDeviceAllocator(device.type()); allocator->initialized()) {
    allocator->resetPeakStats(device.index());
  }
}

PinnedBuffer::PinnedBuffer(std::size_t bytes, c10::Device device)
    : bytes_(bytes), pinned_for_(device.is_cpu() ? nullptr : &backend_of(device)) {
  if (bytes == 0) return;
  if (pinned()) {
    data_ = pinned_for_->allocate_pinned(bytes);
  } else {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t alignment = bytes >= kHugePage ? kHugePage : static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (posix_memalign(&data_, alignment, bytes) != 0) data_ = nullptr;
    if (data_ != nullptr && bytes >= kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
  }
  require(data_ != nullptr, "no {} of {}host memory left ({} available): offload less, or use more nodes",
          format_bytes(static_cast<double>(bytes)), pinned() ? "pinned " : "",
          format_bytes(static_cast<double>(host_memory_available())));
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ == nullptr) return;
  if (pinned()) {
    pinned_for_->free_pinned(data_);
  } else {
    std::free(data_);
  }
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      pinned_for_(std::exchange(other.pinned_for_, nullptr)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(pinned_for_, other.pinned_for_);
  return *this;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes, c10::Device device) : data_(c10::GetAllocator(device.type())->allocate(bytes)) {}

void copy_bytes(void* to, const void* from, std::size_t bytes, c10::Device device) {
  if (bytes == 0) return;
  if (device.is_cpu()) {
    std::memmove(to, from, bytes);
  } else {
    backend_of(device).copy_bytes(to, from, bytes, Stream::current(device).torch());
  }
}

namespace {

constexpr std::int64_t kKernelsPerMicroBatch = 64, kMostKernels = 1024;
// putenv() keeps this very text, so the number can change without moving the environment, which other threads may be reading.
char kernel_capacity[] = "ONEDNN_PRIMITIVE_CACHE_CAPACITY=0064";
bool owns_kernel_capacity = false;

/// oneDNN compiles bf16 products for AVX-512 and later; older processors use ATen's own.
bool compiles_products() {
#if defined(__x86_64__)
  const char* held = std::getenv("ONEDNN_MAX_CPU_ISA");
  const std::string_view most = held == nullptr ? "ALL" : held;
  const bool allowed = most == "ALL" || most == "DEFAULT" || most.starts_with("AVX512") || most.starts_with("AVX10");
  return allowed && __builtin_cpu_supports("avx512bw");
#else
  return true;
#endif
}

std::int64_t kernels_for(std::int64_t micro_batches) {
  return std::clamp(micro_batches * kKernelsPerMicroBatch, kKernelsPerMicroBatch, kMostKernels);
}

}  // namespace

std::int64_t kernel_cache_bytes(std::int64_t micro_batches) {
  if (!compiles_products()) return 0;
  if (micro_batches == 0) return at::get_num_threads() * kBlockKernelBytes;
  return kernels_for(micro_batches) * kKernelCacheBytes / kKernelsPerMicroBatch;
}

void limit_kernel_caches() {
  owns_kernel_capacity = std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY") == nullptr && putenv(kernel_capacity) == 0;
  setenv("LRU_CACHE_CAPACITY", "1", 0);  // ATen's own cache on top of it
}

std::int64_t raise_kernel_cache_limit(std::int64_t micro_batches) {
  if (owns_kernel_capacity) {
    const std::string digits = std::to_string(10000 + kernels_for(micro_batches)).substr(1);
    std::copy(digits.begin(), digits.end(), std::end(kernel_capacity) - 1 - digits.size());
  }
  return kernel_cache_bytes(micro_batches);
}

void request_huge_pages() {
  setenv("THP_MEM_ALLOC_ENABLE", "1", 0);  // LibTorch's setting: madvise for tensors of 2 MiB and more
}

bool tune_allocator() {
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"}) {
    if (std::getenv(name) != nullptr) return false;
  }
  // mallopt takes an int: 1 GiB, so that any activation comes from the heap, and the heap is never trimmed.
  return mallopt(M_MMAP_THRESHOLD, 1 << 30) == 1 && mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) == 1;
}

}  // namespace qft::device
