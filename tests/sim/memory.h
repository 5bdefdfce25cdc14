// Device memory: one memfd mapped twice. Tensors hold addresses in a mapping without access; queued work uses the other mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "queues.h"
#include "sim.h"
#include <c10/core/CachingDeviceAllocator.h>

namespace qft::sim {

/// Memory of one device. Freed memory is overwritten (0xFF) in the order of the stream that allocated it. That stream's next
/// allocation may reuse it immediately; other streams must wait for the overwrite. Hold the lock for every call, unless noted.
class DeviceMemory {
 public:
  DeviceMemory(c10::DeviceIndex device, std::size_t capacity);

  /// Allocates for `stream`, from graph memory `pool` if not 0. Waits for freed memory if there is no other. Throws
  /// c10::OutOfMemoryError.
  void* allocate(Lock& lock, std::size_t bytes, int stream, std::uint64_t pool);
  void free(void* data);
  void record(void* data, int stream);
  void release_pool(std::uint64_t pool);

  /// Needs no lock.
  bool contains(const void* data) const { return data >= held_ && data < held_ + capacity_; }
  void* writable(const void* data) const { return writable_ + (static_cast<const std::byte*>(data) - held_); }
  std::size_t capacity() const { return capacity_; }

  std::optional<Allocation> find(const void* data, std::size_t bytes) const;
  /// Returns why the range is not live; empty if it is.
  std::string why_not_live(const void* data, std::size_t bytes) const;
  /// Returns text such as "16 bytes into allocation 3 (512 bytes, by 'empty', 'weights')".
  std::string describe(const void* data) const;

  c10::CachingDeviceAllocator::DeviceStats stats;

 private:
  using Address = std::uintptr_t;
  struct Block {
    std::size_t size = 0;  ///< a multiple of kRounding
    Allocation what;
    int stream = 0;
    std::set<int> recorded;  ///< other streams that use it
    std::uint64_t pool = 0;
  };
  struct Hole {
    std::size_t size = 0;
    int stream = -1;  ///< stream that freed it; -1: several
    std::vector<Mark> after;
    std::uint64_t pool = 0;
    std::int64_t last = 0;  ///< number of the allocation that was here
  };

  bool usable(const Hole& hole, int stream, std::uint64_t pool) const;
  std::map<Address, Hole>::iterator best_hole(std::size_t size, int stream, std::uint64_t pool);
  std::map<Address, Hole>::iterator make_room(Lock& lock, std::size_t size, int stream, std::uint64_t pool);
  void add_hole(Address begin, Hole hole);
  void merge_done();
  void retire(Address begin, Block block);
  Block* block_at(const void* data);
  const std::pair<const Address, Block>* block_with(const void* data) const;

  c10::DeviceIndex device_;
  std::size_t capacity_;
  std::byte* held_ = nullptr;      ///< address that tensors hold
  std::byte* writable_ = nullptr;  ///< address that work uses
  std::map<Address, Block> blocks_;
  std::map<Address, Hole> holes_;
  std::int64_t allocations_ = 0, frees_ = 0;
};

/// Reads a whole number from the environment.
std::uint64_t setting(const char* name, std::uint64_t otherwise);
int device_count();
DeviceMemory& memory(c10::DeviceIndex device);
/// Returns the device memory that contains the address, or null. Needs no lock.
DeviceMemory* memory_of(const void* data);
std::string describe_address(const void* data);

/// From now on, a host access to tensors' device memory ends the process with a message about it.
void watch_touches();

/// LibTorch's allocator for the device.
c10::DeviceAllocator* device_allocator();

}  // namespace qft::sim
