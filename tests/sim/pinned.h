// Pinned host memory: ranges that queued work may read and write, so that their reuse must wait for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "queues.h"
#include <c10/core/Allocator.h>

namespace qft::sim {

/// The lock is held for every call.
class PinnedMemory {
 public:
  /// Page-aligned; null: there is none left. `kept`: for LibTorch's tensors, whose memory waits by itself for recorded copies.
  void* allocate(std::size_t bytes, bool kept);
  void free(void* data);
  /// A copy in `mark`'s stream uses the memory that LibTorch keeps, if it is that.
  void record(const void* data, Mark mark);
  bool contains(const void* data, std::size_t bytes) const;

 private:
  struct Block {
    std::size_t bytes = 0;  ///< whole pages
    bool kept = false;
    std::vector<Mark> used;
  };
  void* reuse(std::size_t bytes);

  std::map<std::uintptr_t, Block> blocks_, freed_;  ///< freed ones are of the kept kind
};

PinnedMemory& pinned_memory();
c10::Allocator* pinned_allocator();

}  // namespace qft::sim
