// A group of a library of collectives: its calls in non-blocking mode, what its device has done of them, and its end.
#pragma once

#include "qft/comm/collective_library.h"
#include "qft/comm/device_collectives.h"
#include "qft/device/stream.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace qft::comm {

/// Throws Error with the library's text.
[[noreturn]] void fail_in(const CollectiveLibrary& library, CollectiveLibrary::Group group, std::string_view what);

/// Calls come from one thread at a time; progress(), failure() and abort() from any.
class DeviceGroup {
 public:
  using Result = CollectiveLibrary::Result;
  using Post = std::function<Result(const CollectiveLibrary&, CollectiveLibrary::Group, CollectiveLibrary::Stream)>;

  /// Collective.
  DeviceGroup(const CollectiveLibrary& library, const CollectiveLibrary::UniqueId& id, int rank, int size, c10::Device device);
  /// Waits some seconds for what is under way; aborts where that does not end, has failed, or an exception unwinds the stack.
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// Starts what `post` calls, `what`, on `stream` behind the current stream's work so far. Returns the mark behind it.
  std::shared_ptr<const device::Event> launch(const device::Stream& stream, std::string_view what, const Post& post);

  /// Throws if an operation under way has failed.
  void check_async() const;

  DeviceCollectives progress();
  std::string failure();
  /// At most once, also where several threads call.
  void abort() noexcept;

 private:
  struct Launch {
    CollectiveNote note;
    device::Event ready;  ///< behind what it waits for on this rank
    std::shared_ptr<const device::Event> done;
  };
  /// Of the library's own; throws where another thread has aborted, which frees the group.
  Result state() const;
  /// Makes the group's device that of this thread, which may be one that has none: an event of another would get a context there.
  void enter_device() const;
  /// Returns once the call is over; where `limit` is not 0, throws after so long.
  void complete(Result result, std::string_view what, std::chrono::seconds limit) const;
  bool finalize() const noexcept;
  void forget_finished();

  const CollectiveLibrary& library_;
  c10::Device device_;
  std::uint64_t key_;
  int size_;
  CollectiveLibrary::Group group_ = nullptr;
  std::mutex mutex_;
  std::deque<Launch> under_way_;  ///< collectives in the order of their calls
  std::uint64_t called_ = 0, finished_ = 0;
  std::string lost_;                  ///< what the device said when it was asked for the marks' state
  mutable std::mutex library_mutex_;  ///< between state() and abort()
  std::once_flag aborted_;
  std::atomic<bool> is_aborted_{false};
};

}  // namespace qft::comm
