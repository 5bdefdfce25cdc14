// Pinned host memory: queued work may read and write its ranges, so their reuse must wait for that work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "queues.h"
#include <c10/core/Allocator.h>

namespace qft::sim {

/// Hold the lock for every call.
class PinnedMemory {
 public:
  /// Returns page-aligned memory; null if none is left. `kept`: for LibTorch's tensors, whose memory itself waits for recorded
  /// copies.
  void* allocate(std::size_t bytes, bool kept);
  void free(void* data);
  /// Records that a copy in `mark`'s stream uses the memory, if LibTorch keeps it.
  void record(const void* data, Mark mark);
  bool contains(const void* data, std::size_t bytes) const;

 private:
  struct Block {
    std::size_t bytes = 0;  ///< whole pages
    bool kept = false;
    std::vector<Mark> used;
  };
  void* reuse(std::size_t bytes);

  std::map<std::uintptr_t, Block> blocks_, freed_;  ///< freed_ holds only kept blocks
};

PinnedMemory& pinned_memory();
c10::Allocator* pinned_allocator();

}  // namespace qft::sim
