// Device memory: one memfd mapped twice. Tensors hold addresses of a mapping that nothing may touch; queued work uses the other.
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

/// Of one device. Freed memory is overwritten (0xFF) in the order of the stream that allocated it, whose next allocation may
/// have it at once; other streams may when that has been done. The lock is held for every call but where it says otherwise.
class DeviceMemory {
 public:
  DeviceMemory(c10::DeviceIndex device, std::size_t capacity);

  /// For `stream`, from graph memory `pool` if not 0. Throws c10::OutOfMemoryError. Waits for freed memory where there is no
  /// other.
  void* allocate(Lock& lock, std::size_t bytes, int stream, std::uint64_t pool);
  void free(void* data);
  void record(void* data, int stream);
  void release_pool(std::uint64_t pool);

  /// Without the lock.
  bool contains(const void* data) const { return data >= held_ && data < held_ + capacity_; }
  void* writable(const void* data) const { return writable_ + (static_cast<const std::byte*>(data) - held_); }
  std::size_t capacity() const { return capacity_; }

  std::optional<Allocation> find(const void* data, std::size_t bytes) const;
  /// Empty: it is.
  std::string why_not_live(const void* data, std::size_t bytes) const;
  /// "16 bytes into allocation 3 (512 bytes, by 'empty', 'weights')".
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
    int stream = -1;  ///< whose it was; -1: several
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
  std::byte* held_ = nullptr;      ///< what tensors hold
  std::byte* writable_ = nullptr;  ///< what work uses
  std::map<Address, Block> blocks_;
  std::map<Address, Hole> holes_;
  std::int64_t allocations_ = 0, frees_ = 0;
};

/// A whole number of the environment.
std::uint64_t setting(const char* name, std::uint64_t otherwise);
int device_count();
DeviceMemory& memory(c10::DeviceIndex device);
/// The device memory that the address is in, or null. Without the lock.
DeviceMemory* memory_of(const void* data);
std::string describe_address(const void* data);

/// From now on a touch of memory that tensors hold ends the process with a line about it.
void watch_touches();

/// LibTorch's allocator for the device.
c10::DeviceAllocator* device_allocator();

}  // namespace qft::sim
