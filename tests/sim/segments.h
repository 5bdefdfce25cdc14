// What a caching allocator keeps of a device's memory, in numbers: the simulated device's own gives back all that is freed at
// once.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>

namespace qft::sim {

/// As LibTorch's allocators: segments as large as the allocations that they were made for, in which later ones find room, and
/// which go back to the device when nothing in them is in use and somebody asks for it, or there is no other room. Of one device.
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
