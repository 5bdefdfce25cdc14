// The simulated device's interface for tests and for a stand-in for a collective library. The device itself is PyTorch's
// PrivateUse1, named "sim", and exists after qft_device_backend() was called. All functions are thread-safe.
//
// Queued work runs as late as the host's waits allow, in an order among streams drawn from QFT_SIM_SEED (0: the last stream
// first). The order between two streams' work follows from events and waits alone, when the work is queued: unordered work on the
// same memory is an error, whatever order was drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Stream.h>

namespace qft::sim {

/// Bytes that work reads or writes in device memory (by the tensors' address) or in pinned host memory.
struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool write = false;
};

/// Result of a piece of work that may have to wait for another process.
enum class Progress { done, not_yet };

/// Queues `work`. Throws c10::Error if an access is not ordered after work queued by other streams, or if its memory is not live;
/// also throws errors left by other sim calls. During a graph's capture, records `work`, which then runs once per replay.
void enqueue(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<void()> work);

/// The same for work that may have to be called again after other work had its turn. Such work starts some milliseconds after it
/// was queued even if nobody here waits for it, because another process may.
void enqueue_blocking(const c10::Stream& stream, std::string name, std::vector<Access> accesses, std::function<Progress()> work);

/// A live allocation of device memory.
struct Allocation {
  std::int64_t number = 0;  ///< counts from 1
  void* data = nullptr;
  std::size_t bytes = 0;
  std::string operation, label;  ///< operation that allocated it, and label at that time
  c10::DeviceIndex device = 0;
};

/// Returns the live allocation that holds all of [data, data + bytes), if there is one.
std::optional<Allocation> is_device_memory(const void* data, std::size_t bytes);
/// Returns the stream with this native handle of LibTorch's interface.
c10::Stream stream_of(const void* native);

/// True if all of [data, data + bytes) is pinned memory of this process.
bool is_pinned_memory(const void* data, std::size_t bytes);

/// Returns the address at which queued work finds device memory; host addresses are returned unchanged.
void* writable(const void* data);

/// Declares that the host now reads or writes pinned memory: an error if queued work uses it and the host did not wait for that
/// work. Returns true if all is well; this thread's next call that may throw throws the error.
bool host_touch(const void* data, std::size_t bytes, bool write, const std::string& who = "the host");

/// Takes the errors found so far. A process with untaken errors ends with status 1.
std::vector<std::string> errors();

struct Counters {
  std::int64_t queued = 0, run = 0;  ///< pieces of work
  std::int64_t waits = 0;            ///< of the host
};
Counters counters();

/// Returns the peak bytes in live tensors since the last resetPeakStats() of LibTorch's allocator.
std::int64_t peak_use(c10::DeviceIndex device = 0);

/// Labels this thread's future allocations for messages.
void set_label(std::string label);

}  // namespace qft::sim
