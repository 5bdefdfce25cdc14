// Memory: what is used now and at peak, and buffers that a device can copy from at full speed.
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
  std::int64_t total = 0;  ///< what the device has; for the host, that of host_memory_limit()
};

/// Host memory of this process without mapped files. current: RssAnon + RssShmem; peak: VmHWM less RssFile, which is
/// exact as long as mapped files stay where they are.
MemoryUse host_memory();

/// The smallest of RAM, the limits of the control groups that this process is in (version 1 and 2, in a
/// namespace or not), and SLURM's allocation.
struct HostLimit {
  std::int64_t bytes = 0;
  std::string source;  ///< the file or variable that says so; empty: RAM
};
HostLimit host_memory_limit();

/// The host's for cpu; elsewhere what LibTorch's allocator for that device holds in live tensors.
MemoryUse memory_use(c10::Device device);

/// Gives back to the system what malloc keeps of freed memory.
void release_unused();

/// Starts a new peak. On the host where the kernel allows it (/proc/self/clear_refs).
void reset_peak(c10::Device device);

/// Bytes of host memory that this process could still allocate without swapping: of what the host has
/// available, and of what the job's limits leave where no other process takes from them.
std::int64_t host_memory_available();

/// Bytes that this process may still take on `device`, its share where `sharers` processes use it: of what the driver has left
/// (of what the system has left, where the device has no memory of its own), with what LibTorch keeps for this process; on the
/// host, of what is available, within seven eighths of what the process' own limits leave (RLIMIT_DATA, RLIMIT_AS).
std::int64_t memory_left(c10::Device device, int sharers);

class Backend;

/// Page-aligned host memory, uninitialised: pinned for copies from and to `device`; for the CPU plain, with huge pages advised.
/// Throws Error if it cannot be had. Movable.
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

/// Uninitialised memory of a device, from LibTorch's allocator for it.
class DeviceBuffer {
 public:
  DeviceBuffer(std::size_t bytes, c10::Device device);
  void* data() const { return data_.get(); }

 private:
  c10::DataPtr data_;
};

/// Copies between host and device memory in either direction. CPU: at once; elsewhere in order on the
/// current stream, so host memory must stay until that has run.
void copy_bytes(void* to, const void* from, std::size_t bytes, c10::Device device);

/// What LibTorch's compiled CPU kernels may keep after bound_kernel_caches(): 64 of about half a MB each (measured; the code
/// buffer of a oneDNN kernel alone has 256 KiB).
inline constexpr std::int64_t kKernelCacheBytes = 32'000'000;

/// What LibTorch's products of blocks keep for each thread (0.46 MB measured).
inline constexpr std::int64_t kBlockKernelBytes = 500'000;

/// Bytes of compiled CPU products that are kept for so many micro-batches in flight; 0: all products are of blocks, whose few
/// kernels serve any number of tokens.
std::int64_t kernel_cache_bytes(std::int64_t micro_batches);

/// Limits the caches of compiled CPU kernels. Each number of tokens or labels compiles new ones, half a MB each, and LibTorch
/// would keep a thousand; a micro-batch uses fewer than this limit. Call first in main(); the user's settings win.
void bound_kernel_caches();

/// Raises the limit of bound_kernel_caches() for so many micro-batches in flight: their kernels take turns, and evicted ones
/// would be compiled again for every layer. Call before LibTorch's first product. Returns the bytes that may be kept.
std::int64_t keep_kernels_for(std::int64_t micro_batches);

/// Makes malloc keep large blocks instead of returning them to the kernel, so that a tensor as large as one
/// freed before does not fault its pages in again. Call first in main(), before threads start; the user's
/// MALLOC_* and GLIBC_TUNABLES settings win. True if it took effect.
bool tune_allocator();

/// Tensors of 2 MiB and more in host memory lie in huge pages where the kernel gives them on request: for a process whose tensors
/// live long, as their alignment leaves holes. Call before the first tensor is made; the user's THP_MEM_ALLOC_ENABLE wins.
void ask_for_huge_pages();

}  // namespace qft::device
