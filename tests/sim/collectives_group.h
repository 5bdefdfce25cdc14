// A rank's part of a group: its state, and the work that it has in streams.
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

/// An operation that a thread has called, until it is launched.
struct Posted {
  Operation operation;
  c10::Stream stream;
  bool stalls = false, error_follows = false;  ///< told to
};

/// Thread-safe.
class Group : public std::enable_shared_from_this<Group> {
 public:
  using Result = comm::CollectiveLibrary::Result;

  Group(const std::string& id, int rank, int size, c10::DeviceIndex device) : id_(id), device_(device), shared_(id, rank, size) {}

  int rank() const { return shared_.rank(); }
  int size() const { return shared_.size(); }
  c10::DeviceIndex device() const { return device_; }

  /// This thread is about to call `what`; empty: it may, until what it calls is launched or dropped. Otherwise why not.
  std::string claim(const std::string& what);
  void drop();
  /// What claim() gave this thread. It is queued by a later state() of this thread, as NCCL's own thread does it some time.
  void post(std::vector<Posted> operations);

  Result state();
  std::string finalize();
  /// Returns when what was under way has ended, or after a few seconds if other work holds it up.
  void abort();
  /// Of the group, or else what note() said last of a call; empty: all is well.
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
  /// In the worker: as far as `launch` comes.
  Progress run(Launch& launch);
  bool work(Launch& launch);
  void look_for_trouble(const Launch& launch);
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
  std::optional<std::thread::id> caller_;  ///< whose operations are not launched yet
  std::string call_;                       ///< the first of them
  std::optional<Pending> pending_;
  std::optional<c10::Stream> stream_;  ///< of the last launch
  std::optional<c10::Event> last_;     ///< behind the last launch that was not captured
  const Launch* running_ = nullptr;
};

}  // namespace qft::sim::collectives
