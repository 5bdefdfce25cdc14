// Counts the device memory that a caching allocator would keep; the simulated device itself returns all freed memory immediately.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

namespace qft::sim {

/// Models LibTorch's allocators for one device: a segment is as large as the allocation that it was made for. Later allocations
/// can reuse its room. It returns to the device when nothing in it is in use and a caller asks for that or there is no other
/// room.
class Segments {
 public:
  void take(const void* data, std::size_t bytes, std::size_t capacity);
  void give(const void* data);
  void empty();
  c10::CachingAllocator::Stat reserved;  ///< bytes

 private:
  struct Segment {
    std::size_t size = 0, used = 0;  ///< size 0: none
  };
  struct Place {
    std::size_t segment = 0, bytes = 0;
  };
  void note();

  std::vector<Segment> all_;
  std::unordered_map<const void*, Place> places_;
};

}  // namespace qft::sim
