// What a test, or a stand-in for a library of collectives, asks the simulated device. The device itself is PyTorch's PrivateUse1,
// named "sim", there once qft_device_backend() has been called. All functions are thread-safe.
//
// Queued work is done as late as the host's waits allow, in an order among streams that QFT_SIM_SEED draws (0: the last stream
// first). Whether work of two streams is ordered is known from events and waits alone, when it is queued: unordered work on the
// same memory is an error whatever order was drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Stream.h>

namespace qft::sim {

/// Bytes of device memory (by the address that tensors have) or of pinned host memory that work reads or writes.
struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

/// What a piece of work that may have to wait for another process answers.
enum class Progress { done, not_yet };

/// Queues `work`. Throws c10::Error where an access is not ordered after what other streams queued, or is to memory that is
/// not live, and what other sim calls left to be thrown. In a graph's capture `work` is recorded, and runs once per replay.
void enqueue(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<void()> work);

/// The same for work that may have to be called again: others' turn comes in between. Such work is started some milliseconds
/// after it was queued though nobody waits for it, because another process may.
void enqueue_blocking(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<Progress()> work);

/// A live allocation of device memory.
struct Allocation {
  std::int64_t number = 0;  ///< counts from 1
  void* data = nullptr;
  std::size_t bytes = 0;
  std::string operation, label;  ///< which operation allocated it, under which label
  c10::DeviceIndex device = 0;
};

/// The live allocation that holds all of [data, data + bytes), if one does.
std::optional<Allocation> is_device_memory(const void* data, std::size_t bytes);
/// The stream whose native handle LibTorch's interface gives.
c10::Stream stream_of(const void* native);

/// True if all of [data, data + bytes) is pinned memory of this process.
bool is_pinned_memory(const void* data, std::size_t bytes);

/// The address at which queued work finds device memory; host addresses are returned as they are.
void* writable(const void* data);

/// Says that the host reads or writes pinned memory now: an error where queued work that the host has not waited for uses it.
/// Returns true if all is well; the error is thrown by this thread's next call that may throw.
bool host_touch(const void* data, std::size_t bytes, bool write, const std::string& who = "the host");

/// Takes the errors found so far. A process that ends with errors that nobody took ends with status 1.
std::vector<std::string> errors();

struct Counters {
  std::int64_t queued = 0, run = 0;  ///< pieces of work
  std::int64_t waits = 0;            ///< of the host
};
Counters counters();

/// Most bytes in live tensors since the last resetPeakStats() of LibTorch's allocator.
std::int64_t peak_use(c10::DeviceIndex device = 0);

/// Names what this thread allocates from now on, in messages.
void set_label(std::string label);

}  // namespace qft::sim
