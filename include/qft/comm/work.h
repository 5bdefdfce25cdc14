// A handle to a started operation.
#pragma once

#include "qft/core/trace.h"

#include <memory>

namespace qft::comm {

/// A backend's state of one non-blocking operation. Only the thread that owns the Work calls wait() and test().
class WorkState {
 public:
  virtual ~WorkState() = default;
  /// Advances the operation if possible; returns true once its buffers may be used. Throws Error if it failed.
  virtual bool test() = 0;
  /// Returns once the buffers may be used, as in Work::wait().
  virtual void wait() = 0;
  /// Returns once the operation is over for the host as well.
  virtual void wait_host() { wait(); }
  /// Called while the stack unwinds, before the buffers are freed: gives the operation a last short time to complete.
  virtual void abandon() noexcept {}
  /// steady_seconds() at completion; 0: not known. Call after completion.
  virtual double completed_at() const { return 0.0; }
};

/// Owns one operation. The operation's buffers must live until it is complete, so the destructor waits. While an exception
/// unwinds the stack it waits only a few seconds, since a peer may never come; then the job must end.
class Work {
 public:
  Work() = default;  ///< complete
  explicit Work(std::shared_ptr<WorkState> state);
  ~Work();
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// Host buffers: blocks until complete. Device buffers: makes the current stream wait and returns at once. Throws Error if the
  /// operation failed. May be called twice.
  void wait();
  /// Blocks the host until complete, for host and device buffers. Polls, so a dead peer is noticed.
  void wait_host();
  /// Returns true once complete. Advances the operation and never blocks.
  bool test();

  /// Adds `span`, which has no end yet, to the trace once the operation is complete.
  void record(trace::Span span);

 private:
  void complete();
  std::shared_ptr<WorkState> state_;
  std::unique_ptr<trace::Span> span_;  ///< null: not recorded
};

/// True once an operation was abandoned that may still touch freed buffers. From then on this process must not let MPI make
/// progress; it must only end the job.
bool operations_abandoned();

}  // namespace qft::comm
