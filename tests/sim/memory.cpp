#include "memory.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "capture.h"
#include "report.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

constexpr std::size_t kRounding = 512;
constexpr int kFreesPerMerge = 64;
constexpr int kPoison = 0xFF;  // NaN in every float type, -1 in every integer

std::byte* map(int file, std::size_t bytes, int protection) {
  void* const data = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
  TORCH_CHECK(data != MAP_FAILED, "sim: cannot map ", bytes, " bytes of device memory: ", std::strerror(errno));
  return static_cast<std::byte*>(data);
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT: addresses are numbers in the maps
}
std::uintptr_t number(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

std::string name_of(const Allocation& a) {
  return c10::str("allocation ", a.number, " (", a.bytes, " bytes, by '", a.operation, "'",
                  a.label.empty() ? "" : c10::str(", '", a.label, "'"), ")");
}

std::function<Progress()> poison(void* data, std::size_t bytes) {
  return [data, bytes] {
    std::memset(data, kPoison, bytes);
    return Progress::done;
  };
}

bool all_done(const std::vector<Mark>& marks) {
  return std::all_of(marks.begin(), marks.end(), [](Mark mark) { return queues().done(mark); });
}

}  // namespace

DeviceMemory::DeviceMemory(c10::DeviceIndex device, std::size_t capacity)
    : device_(device), capacity_(std::max(capacity, kRounding) / kRounding * kRounding) {
  const int file = memfd_create("sim device memory", MFD_CLOEXEC);
  TORCH_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(capacity_)) == 0, "sim: no memfd of ", capacity_,
              " bytes: ", std::strerror(errno));
  held_ = map(file, capacity_, PROT_NONE);
  writable_ = map(file, capacity_, PROT_READ | PROT_WRITE);
  close(file);
  holes_[number(held_)] = Hole{.size = capacity_, .after = {}};
}

bool DeviceMemory::usable(const Hole& hole, int stream, std::uint64_t pool) const {
  if (hole.pool != pool) return hole.pool == 0 && all_done(hole.after);
  return hole.stream == stream || (pool == 0 && all_done(hole.after));
}

std::map<DeviceMemory::Address, DeviceMemory::Hole>::iterator DeviceMemory::best_hole(std::size_t size, int stream,
                                                                                      std::uint64_t pool) {
  auto best = holes_.end();
  const auto rank = [&](const Hole& h) { return std::tuple(h.pool != pool, h.stream != stream, h.size); };
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole)
    if (hole->second.size >= size && usable(hole->second, stream, pool) &&
        (best == holes_.end() || rank(hole->second) < rank(best->second)))
      best = hole;
  return best;
}

void DeviceMemory::merge_done() {
  for (auto hole = holes_.begin(); hole != holes_.end();) {
    Hole& h = hole->second;
    if (h.pool == 0 && all_done(h.after)) {
      h.after.clear();
      h.stream = -1;
    }
    const auto next = std::next(hole);
    const bool joined = hole != holes_.begin() && [&] {
      auto& [begin, before] = *std::prev(hole);
      if (begin + before.size != hole->first || before.pool != h.pool || before.stream != h.stream) return false;
      if (h.stream < 0 && !(before.after.empty() && h.after.empty())) return false;
      before.size += h.size;
      for (const Mark& mark : h.after) {  // of one stream keep the later mark
        if (before.after.empty()) before.after.push_back(mark);
        before.after[0].at = std::max(before.after[0].at, mark.at);
      }
      before.last = std::max(before.last, h.last);
      return true;
    }();
    if (joined) holes_.erase(hole);
    hole = next;
  }
}

std::map<DeviceMemory::Address, DeviceMemory::Hole>::iterator DeviceMemory::make_room(Lock& lock, std::size_t size, int stream,
                                                                                      std::uint64_t pool) {
  auto hole = best_hole(size, stream, pool);
  if (hole != holes_.end()) return hole;
  merge_done();
  hole = best_hole(size, stream, pool);
  if (hole != holes_.end()) return hole;
  ++stats.num_alloc_retries;
  std::vector<Mark> marks;
  for (const auto& [begin, h] : holes_) marks.insert(marks.end(), h.after.begin(), h.after.end());
  queues().run(lock, marks);
  merge_done();
  return best_hole(size, stream, pool);
}

void* DeviceMemory::allocate(Lock& lock, std::size_t bytes, int stream, std::uint64_t pool) {
  const std::size_t size = (bytes + kRounding - 1) / kRounding * kRounding;
  auto& in_use = stats.allocated_bytes[0];
  const auto hole = size <= capacity_ ? make_room(lock, size, stream, pool) : holes_.end();
  if (hole == holes_.end()) {
    ++stats.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "sim: out of memory: ", bytes, " bytes wanted on sim:", static_cast<int>(device_),
                     ", of ", capacity_, " (QFT_SIM_MEMORY) ", in_use.current, " are in use");
  }
  const auto [begin, from] = *hole;
  holes_.erase(hole);
  if (from.size > size) {
    Hole rest = from;
    rest.size -= size;
    holes_[begin + size] = std::move(rest);
  }
  if (from.last == 0) std::memset(writable(pointer(begin)), kPoison, size);  // as if never written
  const std::string operation = current_operation().empty() ? "an allocator's user" : current_operation();
  const Block& block = blocks_[begin] =
      Block{size, {++allocations_, pointer(begin), bytes, operation, current_label(), device_}, stream, {}, pool};
  in_use.increase(size);
  stats.active_bytes[0].increase(size);
  stats.reserved_bytes[0].increase(size);
  stats.requested_bytes[0].increase(bytes);
  stats.allocation[0].increase(1);
  // Other streams must come after this stream's earlier use of the memory, whether there was one or not.
  const auto name = std::make_shared<std::string>(name_of(block.what));
  if (Capture* capture = capture_of(stream); capture != nullptr && pool != 0) {
    capture->uses.note(begin, begin + size, true, {stream, capture->lanes.at(stream).pushed, name});
  } else {
    uses().note(begin, begin + size, true, {stream, queues().last(stream).at, name});
  }
  return pointer(begin);
}

void DeviceMemory::retire(Address begin, Block block) {
  const Address end = begin + block.size;
  const std::string name = c10::str("free of ", name_of(block.what));
  const auto shared_name = std::make_shared<std::string>(name);
  Capture* const capture = capture_of(block.stream);
  const auto check = [&](const Uses& seen, const Clock& clock) {
    if (const auto conflict = seen.conflict(begin, end, true, clock))
      report(c10::str("sim: ", name_of(block.what), " is freed while '", conflict->use.name ? *conflict->use.name : "?", "' in ",
                      stream_name(conflict->use.stream), conflict->writes ? " writes" : " reads", " it: let ",
                      stream_name(block.stream),
                      ", which allocated it, wait for that first, or record the other stream (recordStream)"));
  };
  if (block.pool != 0) {
    if (capture != nullptr && capture->pool == block.pool) {
      auto& lane = capture->lanes.at(block.stream);
      check(capture->uses, lane.clock);
      advance(lane.clock, block.stream, ++lane.pushed);
      capture->uses.note(begin, end, true, {block.stream, lane.pushed, shared_name});
      capture->recorded.push_back(
          {name, {{pointer(begin), block.size, true}}, poison(writable(pointer(begin)), block.size), false});
    }
    holes_[begin] = Hole{block.size, block.stream, {}, block.pool, block.what.number};
    return merge_done();
  }
  const bool plain = block.recorded.empty() && capture == nullptr;
  const int stream = plain ? block.stream : device_ * kStreamsPerDevice + kRetireStream;
  std::vector<Mark> after;
  Clock clock = queues().host();
  block.recorded.insert(block.stream);
  for (const int s : block.recorded) {
    join(clock, queues().clock(s));
    if (!plain) after.push_back(queues().last(s));
  }
  check(uses(), clock);
  join(queues().clock(stream), clock);
  const Mark mark = queues().push(stream, {name, poison(writable(pointer(begin)), block.size), std::move(after), false, false});
  uses().note(begin, end, true, {mark.stream, mark.at, shared_name});
  holes_[begin] = Hole{block.size, plain ? stream : -1, {mark}, 0, block.what.number};
}

void DeviceMemory::free(void* data) {
  const auto found = blocks_.find(number(data));
  if (found == blocks_.end())
    return report(c10::str("sim: a free of ", describe(data), ", which is not the start of an allocation"));
  Block block = std::move(found->second);
  blocks_.erase(found);
  stats.allocated_bytes[0].decrease(block.size);
  stats.active_bytes[0].decrease(block.size);
  stats.reserved_bytes[0].decrease(block.size);
  stats.requested_bytes[0].decrease(block.what.bytes);
  stats.allocation[0].decrease(1);
  retire(number(data), std::move(block));
  if (++frees_ % kFreesPerMerge == 0) merge_done();
}

void DeviceMemory::record(void* data, int stream) {
  const auto found = blocks_.find(number(data));
  if (found != blocks_.end() && found->second.stream != stream) found->second.recorded.insert(stream);
}

void DeviceMemory::release_pool(std::uint64_t pool) {
  // Replays may be running in any stream.
  std::vector<Mark> after;
  for (int s = 0; s < queues().streams(); ++s) after.push_back(queues().last(s));
  for (auto& [begin, hole] : holes_)
    if (hole.pool == pool) {
      hole.pool = 0;
      hole.stream = -1;
      hole.after = after;
    }
  for (auto& [begin, block] : blocks_)
    if (block.pool == pool) block.pool = 0;
}

const std::pair<const DeviceMemory::Address, DeviceMemory::Block>* DeviceMemory::block_with(const void* data) const {
  const auto after = blocks_.upper_bound(number(data));
  if (after == blocks_.begin()) return nullptr;
  const auto& entry = *std::prev(after);
  return number(data) < entry.first + entry.second.size ? &entry : nullptr;
}

std::optional<Allocation> DeviceMemory::find(const void* data, std::size_t bytes) const {
  const auto* entry = block_with(data);
  if (entry == nullptr || number(data) + bytes > entry->first + entry->second.what.bytes) return std::nullopt;
  return entry->second.what;
}

std::string DeviceMemory::why_not_live(const void* data, std::size_t bytes) const {
  if (find(data, bytes)) return {};
  for (Address at = number(data); at < number(data) + bytes;) {  // a graph's memory belongs to its replays
    const auto* entry = block_with(pointer(at));
    const auto after = holes_.upper_bound(at);
    if (entry != nullptr && entry->second.pool != 0) {
      at = entry->first + entry->second.size;
    } else if (entry == nullptr && after != holes_.begin() && std::prev(after)->second.pool != 0) {
      at = std::prev(after)->first + std::prev(after)->second.size;
    } else {
      return c10::str(entry == nullptr ? "of freed memory: " : "beyond the end of its memory: from ", describe(data));
    }
  }
  return {};
}

std::string DeviceMemory::describe(const void* data) const {
  if (const auto* entry = block_with(data))
    return c10::str(number(data) - entry->first, " bytes into ", name_of(entry->second.what));
  const auto after = holes_.upper_bound(number(data));
  const std::int64_t last = after == holes_.begin() ? 0 : std::prev(after)->second.last;
  return last == 0 ? "memory that nobody allocated" : c10::str("free memory, last of allocation ", last);
}

}  // namespace qft::sim
