// Memory use, now and at peak, and buffers for copies at full speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace qft::device {

/// Bytes.
struct MemoryUse {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t total = 0;  ///< memory of the device; for the host, host_memory_limit()
};

/// Returns this process's host memory without mapped files. current: RssAnon + RssShmem; peak: VmHWM minus RssFile, which is
/// exact as long as mapped files stay resident.
MemoryUse host_memory();

/// The smallest of RAM, the limits of this process's control groups (version 1 and 2, with or without a namespace), and SLURM's
/// allocation.
struct HostLimit {
  std::int64_t bytes = 0;
  std::string source;  ///< the file or variable that sets the limit; empty: RAM
};
HostLimit host_memory_limit();

/// Returns host memory for the CPU; for other devices, the live tensors in LibTorch's allocator for the device.
MemoryUse memory_use(c10::Device device);

/// Returns memory that malloc keeps after free() to the system.
void release_unused();

/// Starts a new peak. For the host it needs the kernel's permission (/proc/self/clear_refs).
void reset_peak(c10::Device device);

/// Returns the bytes of host memory that this process could still allocate without swapping. Counts the host's available memory
/// and the room under the job's limits, if no other process takes from them.
std::int64_t host_memory_available();

/// Returns the bytes that this process may still take on `device`: its share if `sharers` processes use the device. On a device
/// with its own memory: free driver memory plus unused memory that LibTorch keeps for this process. On unified memory: the
/// system's available memory instead of the driver's. On the host: available memory, up to seven eighths of the room under the
/// process's own limits (RLIMIT_DATA, RLIMIT_AS).
std::int64_t memory_left(c10::Device device, int sharers);

class Backend;

/// Page-aligned, uninitialised host memory: pinned for copies from and to `device`; plain for the CPU, with huge pages advised.
/// Throws Error if it cannot be allocated. Movable.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(std::size_t bytes, c10::Device device);
  ~PinnedBuffer();
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  bool pinned() const { return pinned_for_ != nullptr; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  const Backend* pinned_for_ = nullptr;
};

/// Uninitialised device memory, from LibTorch's allocator.
class DeviceBuffer {
 public:
  DeviceBuffer(std::size_t bytes, c10::Device device);
  void* data() const { return data_.get(); }

 private:
  c10::DataPtr data_;
};

/// Copies between host and device memory in either direction. On the CPU at once; elsewhere in order on the current stream, so
/// the host memory must live until the copy has run.
void copy_bytes(void* to, const void* from, std::size_t bytes, c10::Device device);

/// Bytes that LibTorch's compiled CPU kernels may keep after limit_kernel_caches(): 64 kernels of about half a MB each (measured;
/// the code buffer of a oneDNN kernel alone takes 256 KiB).
inline constexpr std::int64_t kKernelCacheBytes = 32'000'000;

/// Bytes that LibTorch's blocked matrix products keep per thread (0.46 MB measured).
inline constexpr std::int64_t kBlockKernelBytes = 500'000;

/// Returns the bytes of compiled CPU matrix products that are kept for `micro_batches` micro-batches in flight; 0 if all products
/// are blocked: their few kernels serve any number of tokens.
std::int64_t kernel_cache_bytes(std::int64_t micro_batches);

/// Limits the caches of compiled CPU kernels. Each number of tokens or labels compiles new kernels, half a MB each, and LibTorch
/// would keep a thousand; a micro-batch uses fewer than this limit. Call it first in main(). The user's settings take precedence.
void limit_kernel_caches();

/// Raises the limit of limit_kernel_caches() for `micro_batches` micro-batches in flight. They alternate, and evicted kernels
/// would be compiled again for every layer. Call it before LibTorch's first product. Returns the bytes that may be kept.
std::int64_t raise_kernel_cache_limit(std::int64_t micro_batches);

/// Makes malloc keep large blocks instead of returning them to the kernel, so that a new tensor does not fault in the pages of a
/// freed one again. Call it first in main(), before threads start. The user's MALLOC_* and GLIBC_TUNABLES settings take
/// precedence. Returns true if it took effect.
bool tune_allocator();

/// Puts host tensors of 2 MiB and more into huge pages if the kernel grants them on request. For a process with long-lived
/// tensors, because their alignment leaves holes. Call it before the first tensor is made. The user's THP_MEM_ALLOC_ENABLE takes
/// precedence.
void request_huge_pages();

}  // namespace qft::device
