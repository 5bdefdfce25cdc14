// A rank's part of a group: its state and its work in streams.
#pragma once

#include "qft/comm/collective_library.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives_launch.h"
#include "sim.h"
#include <c10/core/Event.h>

namespace qft::sim::collectives {

/// An operation that a thread has called, before its launch.
struct Posted {
  Operation operation;
  c10::Stream stream;
  bool stalls = false, error_follows = false;  ///< injected faults
};

/// Thread-safe.
class Group : public std::enable_shared_from_this<Group> {
 public:
  using Result = comm::CollectiveLibrary::Result;

  Group(const std::string& id, int rank, int size, c10::DeviceIndex device) : id_(id), device_(device), shared_(id, rank, size) {}

  int rank() const { return shared_.rank(); }
  int size() const { return shared_.size(); }
  c10::DeviceIndex device() const { return device_; }

  /// Call before this thread calls `what`. Returns "" if the call is allowed, until it is launched or dropped; otherwise the
  /// reason.
  std::string claim(const std::string& what);
  void drop();
  /// Posts operations that claim() allowed. A later state() call of this thread queues them, as NCCL's own thread does at some
  /// time.
  void post(std::vector<Posted> operations);

  Result state();
  std::string finalize();
  /// Returns after the running operations have ended, or after a few seconds if other work delays them.
  void abort();
  /// Returns the group's failure, or else the last note() about a call; empty if all is well.
  std::string failure() const;
  void note(const std::string& refusal);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Pending {
    std::vector<Posted> operations;
    int asked = 0;
  };
  Result state_of_start();
  Result state_of_end();
  void launch(std::vector<Posted> operations);
  /// Advances `launch` as far as possible; runs in the worker.
  Progress run(Launch& launch);
  bool work(Launch& launch);
  void check_for_deadlock(const Launch& launch);
  std::string departure(const Launch& launch) const;
  std::string waiting(const Launch& launch) const;
  void fail_locked(const std::string& why);

  const std::string id_;
  const c10::DeviceIndex device_;
  mutable std::mutex mutex_;
  Shared shared_;
  bool joined_ = false, finalizing_ = false, aborted_ = false;
  std::string failure_, refusal_;
  Time failed_at_, moved_at_, looked_at_;
  std::optional<std::thread::id> caller_;  ///< thread with operations that are not launched yet
  std::string call_;                       ///< the first of these operations
  std::optional<Pending> pending_;
  std::optional<c10::Stream> stream_;  ///< stream of the last launch
  std::optional<c10::Event> last_;     ///< after the last launch that was not captured
  const Launch* running_ = nullptr;
};

}  // namespace qft::sim::collectives
