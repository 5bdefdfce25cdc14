// Queues of device work and marks in them. On the CPU everything is already done when a call returns: no-ops.
#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace qft::device {

class Event;

/// A queue of device work; a cheap value (streams come from LibTorch's pools and are never destroyed).
class Stream {
 public:
  /// The stream that ATen's operations on this thread use.
  static Stream current(c10::Device device);
  /// A stream of the pool, other than the default one.
  static Stream make(c10::Device device, bool high_priority = false);

  c10::Device device() const { return stream_.device(); }
  /// Work queued after this call starts when `event` has happened.
  void wait(const Event& event) const;
  /// Work queued after this call starts when all that `other` has queued so far is done.
  void wait(const Stream& other) const;
  /// True when everything queued so far is done.
  bool idle() const;
  /// Blocks the host until idle.
  void synchronize() const;
  /// The library's own stream, such as cudaStream_t; null on the CPU.
  void* native() const;
  c10::Stream torch() const { return stream_; }
  bool operator==(const Stream& other) const { return stream_ == other.stream_; }

 private:
  explicit Stream(c10::Stream stream) : stream_(stream) {}
  c10::Stream stream_;
};

/// A mark in a stream. Movable; unrecorded events have happened.
class Event {
 public:
  explicit Event(c10::Device device, bool timing = false);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(const Stream& stream);
  /// True when it has happened.
  bool query() const;
  /// Blocks the host until it has happened.
  void synchronize() const;
  /// Milliseconds from `earlier` to this event; both with timing, recorded and happened.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes `stream` the current one of this thread until the end of the scope.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  ~StreamGuard();
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  Stream previous_;
};

}  // namespace qft::device
