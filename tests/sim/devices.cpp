// This process's devices, LibTorch's allocator for them, and the report when the host touches their memory.
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <unistd.h>

#include "capture.h"
#include "guard.h"
#include "memory.h"
#include "pinned.h"
#include "segments.h"
#include <c10/util/Exception.h>

namespace qft::sim {
namespace {

constexpr int kMostDevices = 16;
std::array<std::atomic<DeviceMemory*>, kMostDevices> memories{};
std::mutex machine;
struct sigaction previous{};

[[noreturn]] void end_of_touch(const void* address) {
  const bool locked = machine.try_lock();  // without the lock, a map may be read while it changes: the process ends in any case
  char line[512];
  const std::string what = memory_of(address)->describe(address);
  const int n = std::snprintf(
      line, sizeof line,
      "sim: the host touches device memory, %s: it is the device's alone, copy it to the host first. The touch:\n", what.c_str());
  (void)!write(STDERR_FILENO, line, static_cast<std::size_t>(std::clamp<int>(n, 0, sizeof line - 1)));
  void* frames[48];
  backtrace_symbols_fd(frames, backtrace(frames, 48), STDERR_FILENO);
  if (locked) machine.unlock();
  _exit(70);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  if (memory_of(info->si_addr) != nullptr) end_of_touch(info->si_addr);
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  sigaction(signal, &previous, nullptr);  // the faulting instruction runs again and ends the process
}

/// Call with the machine's lock.
Segments& segments(c10::DeviceIndex device) {
  static auto* const all = new std::array<Segments, kMostDevices>;
  return (*all)[static_cast<std::size_t>(device)];
}

void free_data(void* data) {
  if (data == nullptr) return;
  const Lock lock = lock_machine();
  for (c10::DeviceIndex i = 0; i < device_count(); ++i) segments(i).give(data);
  memory_of(data)->free(data);
}

class SimAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device = current_device();
    if (bytes == 0) return {nullptr, device};
    const int stream = stream_index(current_stream(device.index()));
    DeviceMemory& from = memory(device.index());
    Lock lock = lock_machine();
    const Capture* const capture = capture_for(stream, "an allocation");
    void* const data = from.allocate(lock, bytes, stream, capture == nullptr ? 0 : capture->pool);
    segments(device.index()).take(data, bytes, from.capacity());
    return {data, data, &free_data, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_data; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    const void* const source = writable(from);
    void* const target = writable(to);
    enqueue(
        current_stream(current_device().index()), "clone of a storage", {{from, bytes, false}, {to, bytes, true}},
        [source, target, bytes] { std::copy_n(static_cast<const std::byte*>(source), bytes, static_cast<std::byte*>(target)); });
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    const Lock lock = lock_machine();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) segments(i).empty();
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() == nullptr) return;
    const Lock lock = lock_machine();
    if (DeviceMemory* m = memory_of(data.get())) m->record(data.get(), stream_index(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const Lock lock = lock_machine();
    auto stats = memory(device).stats;
    stats.reserved_bytes[0] = segments(device).reserved;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const Lock lock = lock_machine();
    auto& s = memory(device).stats;
    for (auto* stat : {&s.allocated_bytes, &s.active_bytes, &s.reserved_bytes, &s.requested_bytes, &s.allocation})
      (*stat)[0].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const Lock lock = lock_machine();
    auto& s = memory(device).stats;
    for (auto* stat : {&s.allocated_bytes, &s.active_bytes, &s.reserved_bytes, &s.requested_bytes, &s.allocation})
      (*stat)[0].reset_peak();
    segments(device).reserved.reset_peak();
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const Lock lock = lock_machine();
    const DeviceMemory& m = memory(device);
    const std::size_t left = m.capacity() - std::min(m.capacity(), static_cast<std::size_t>(segments(device).reserved.current));
    return {setting("QFT_SIM_UNIFIED", 0) != 0 ? left / 4 : left, m.capacity()};  // file caches take the rest
  }
};

}  // namespace

Lock lock_machine() {
  return Lock(machine);
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  TORCH_CHECK(*end == '\0', "sim: ", name, "='", text, "' is not a whole number");
  return value;
}

Queues& queues() {
  static auto* const all = new Queues(setting("QFT_SIM_SEED", 0));
  return *all;
}

int device_count() {
  static const int count = static_cast<int>(std::min<std::uint64_t>(setting("QFT_SIM_DEVICES", 1), kMostDevices));
  return count;
}

DeviceMemory& memory(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < device_count(), "sim: no device ", static_cast<int>(device), " of ", device_count());
  auto& place = memories[static_cast<std::size_t>(device)];
  if (DeviceMemory* known = place.load()) return *known;
  static std::mutex making;
  const std::lock_guard lock(making);
  if (place.load() == nullptr) place = new DeviceMemory(device, setting("QFT_SIM_MEMORY", std::uint64_t{2} << 30));
  return *place.load();
}

DeviceMemory* memory_of(const void* data) {
  for (const auto& place : memories)
    if (DeviceMemory* m = place.load(); m != nullptr && m->contains(data)) return m;
  return nullptr;
}

std::string describe_address(const void* data) {
  const DeviceMemory* const m = memory_of(data);
  return m == nullptr ? c10::str("pinned memory ", data) : m->describe(data);
}

void watch_touches() {
  void* frame[1];
  backtrace(frame, 1);  // loads its library now, which a signal handler must not do
  struct sigaction action{};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &previous);
}

c10::DeviceAllocator* device_allocator() {
  static auto* const allocator = new SimAllocator;
  return allocator;
}

std::optional<Allocation> is_device_memory(const void* data, std::size_t bytes) {
  const DeviceMemory* const m = memory_of(data);
  if (m == nullptr) return std::nullopt;
  const Lock lock = lock_machine();
  return m->find(data, bytes);
}

void* writable(const void* data) {
  const DeviceMemory* const m = memory_of(data);
  return m == nullptr ? const_cast<void*>(data) : m->writable(data);
}

std::int64_t peak_use(c10::DeviceIndex device) {
  const Lock lock = lock_machine();
  return memory(device).stats.allocated_bytes[0].peak;
}

}  // namespace qft::sim
