// A group of a collective library: its calls in non-blocking mode, the progress of its device, and its end.
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

/// Throws Error with the library's text about the call `what`.
[[noreturn]] void fail_in(const CollectiveLibrary& library, CollectiveLibrary::Group group, std::string_view what);

/// Call from one thread at a time; progress(), failure() and abort() are thread-safe.
class DeviceGroup {
 public:
  using Result = CollectiveLibrary::Result;
  using Post = std::function<Result(const CollectiveLibrary&, CollectiveLibrary::Group, CollectiveLibrary::Stream)>;

  /// `name`: what the ranks exchange, for messages. Collective.
  DeviceGroup(const CollectiveLibrary& library, const CollectiveLibrary::UniqueId& id, int rank, int size, c10::Device device,
              std::string name);
  /// Waits some seconds for started operations. Aborts if they do not end, if one has failed, or if an exception unwinds the
  /// stack.
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  /// Starts the calls of `post`, named `what`, on `stream` after the current stream's work so far. Returns an event recorded
  /// after them.
  std::shared_ptr<const device::Event> launch(const device::Stream& stream, std::string_view what, const Post& post);

  /// Throws Error if a started operation has failed.
  void check_async() const;

  DeviceCollectives progress();
  std::string failure();
  /// Aborts at most once, even if several threads call it.
  void abort() noexcept;

 private:
  struct Launch {
    CollectiveNote note;
    device::Event ready;  ///< recorded after the work that the operation waits for on this rank
    std::shared_ptr<const device::Event> done;
  };
  /// Returns the library's state. Throws Error if another thread has aborted, which frees the group.
  Result state() const;
  /// Makes the group's device current on this thread, which may not have one: an event on another device would create a context
  /// there.
  void enter_device() const;
  /// Returns once the call is over. Throws Error after `limit`, unless `limit` is 0.
  void complete(Result result, std::string_view what, std::chrono::seconds limit) const;
  bool finalize() const noexcept;
  void forget_finished();

  /// "all_reduce in group tensor"
  std::string call_name(std::string_view what) const;

  const CollectiveLibrary& library_;
  c10::Device device_;
  std::string name_;
  std::uint64_t key_;
  int size_;
  CollectiveLibrary::Group group_ = nullptr;
  std::mutex mutex_;
  std::deque<Launch> in_flight_;  ///< started collectives in the order of their calls
  std::uint64_t called_ = 0, finished_ = 0;
  std::string device_error_;          ///< the device's error when its events were queried
  mutable std::mutex library_mutex_;  ///< guards against abort() during state()
  std::once_flag aborted_;
  std::atomic<bool> is_aborted_{false};
};

}  // namespace qft::comm
