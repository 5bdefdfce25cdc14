#include "pinned.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include "capture.h"
#include "memory.h"
#include "report.h"
#include "sim.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

constexpr int kPoison = 0xFF;

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max(page, (bytes + page - 1) / page * page);
}

std::uintptr_t number(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}
void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT
}

/// Call with the lock. Returns "" if the host may touch the memory.
std::string touch_error(const void* data, std::size_t bytes, bool write, const std::string& who, Clock clock) {
  const auto conflict = uses().conflict(number(data), number(data) + bytes, write, clock);
  if (!conflict) return {};
  return c10::str("sim: ", who, write ? " writes" : " reads", " ", bytes, " bytes of pinned memory that '", *conflict->use.name,
                  "' in ", stream_name(conflict->use.stream), conflict->writes ? " writes" : " reads",
                  ": wait for that work first");
}

void free_data(void* data) {
  if (data == nullptr) return;
  const Lock lock = lock_machine();
  pinned_memory().free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    const Lock lock = lock_machine();
    void* const data = pinned_memory().allocate(bytes, /*kept=*/true);
    TORCH_CHECK(data != nullptr, "sim: no ", bytes, " bytes of pinned memory left");
    return {data, data, &free_data, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_data; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
};

}  // namespace

PinnedMemory& pinned_memory() {
  static auto* const all = new PinnedMemory;
  return *all;
}

c10::Allocator* pinned_allocator() {
  static auto* const allocator = new PinnedAllocator;
  return allocator;
}

void* PinnedMemory::reuse(std::size_t bytes) {
  for (auto block = freed_.begin(); block != freed_.end(); ++block) {
    const auto& used = block->second.used;
    if (block->second.bytes != bytes || !std::all_of(used.begin(), used.end(), [](Mark m) { return queues().done(m); })) continue;
    void* const data = pointer(block->first);
    uses().forget(block->first, block->first + bytes);
    std::memset(data, kPoison, bytes);
    freed_.erase(block);
    return data;
  }
  return nullptr;
}

void* PinnedMemory::allocate(std::size_t bytes, bool kept) {
  const std::size_t size = whole_pages(bytes);
  void* data = kept ? reuse(size) : nullptr;
  if (data == nullptr) {
    data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    if (kept) std::memset(data, kPoison, size);
  }
  blocks_[number(data)] = Block{size, kept, {}};
  return data;
}

void PinnedMemory::free(void* data) {
  const auto found = blocks_.find(number(data));
  if (found == blocks_.end())
    return report(c10::str("sim: a free of pinned memory at ", data, ", which is not the start of an allocation"));
  Block block = std::move(found->second);
  blocks_.erase(found);
  Clock clock = queues().host();
  for (const Mark& mark : block.used) advance(clock, mark.stream, mark.at);
  const std::string error = touch_error(data, block.bytes, true, "a free", clock);
  if (!error.empty()) report(error);
  if (block.kept) {
    freed_.emplace(number(data), std::move(block));
  } else if (error.empty()) {  // otherwise queued work still uses it
    uses().forget(number(data), number(data) + block.bytes);
    munmap(data, block.bytes);
  }
}

void PinnedMemory::record(const void* data, Mark mark) {
  auto after = blocks_.upper_bound(number(data));
  if (after == blocks_.begin()) return;
  Block& block = std::prev(after)->second;
  if (!block.kept) return;
  std::erase_if(block.used, [&](const Mark& m) { return m.stream == mark.stream; });  // replaces an earlier mark
  block.used.push_back(mark);
}

bool PinnedMemory::contains(const void* data, std::size_t bytes) const {
  const auto after = blocks_.upper_bound(number(data));
  if (after == blocks_.begin()) return false;
  const auto& [begin, block] = *std::prev(after);
  return number(data) + bytes <= begin + block.bytes;
}

bool is_pinned_memory(const void* data, std::size_t bytes) {
  const Lock lock = lock_machine();
  return pinned_memory().contains(data, bytes);
}

bool host_touch(const void* data, std::size_t bytes, bool write, const std::string& who) {
  const Lock lock = lock_machine();
  const std::string error = touch_error(data, bytes, write, who, queues().host());
  if (!error.empty()) report(error);
  return error.empty();
}

}  // namespace qft::sim
