// Queues of device work, and events in them. No-ops on the CPU, where all work is done when a call returns.
#pragma once

#include <memory>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace qft::device {

class Event;

/// A queue of device work; cheap to copy (streams come from LibTorch's pools and are never destroyed).
class Stream {
 public:
  /// Returns the stream that ATen's operations on this thread use.
  static Stream current(c10::Device device);
  /// Returns a stream of the pool, never the default stream.
  static Stream make(c10::Device device, bool high_priority = false);

  c10::Device device() const { return stream_.device(); }
  /// Makes work queued after this call start only when `event` has happened.
  void wait(const Event& event) const;
  /// Makes work queued after this call start only when all work that `other` has queued so far is done.
  void wait(const Stream& other) const;
  /// Returns true if everything queued so far is done.
  bool idle() const;
  /// Blocks the host until idle.
  void synchronize() const;
  /// Returns the library's own stream, such as cudaStream_t; null on the CPU.
  void* native() const;
  c10::Stream torch() const { return stream_; }
  bool operator==(const Stream& other) const { return stream_ == other.stream_; }

 private:
  explicit Stream(c10::Stream stream) : stream_(stream) {}
  c10::Stream stream_;
};

/// A mark in a stream. Movable; an unrecorded event counts as happened.
class Event {
 public:
  explicit Event(c10::Device device, bool timing = false);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  void record(const Stream& stream);
  /// Returns true if the event has happened.
  bool query() const;
  /// Blocks the host until the event has happened.
  void synchronize() const;
  /// Returns the milliseconds from `earlier` to this event. Both need timing, and must be recorded and have happened.
  double milliseconds_since(const Event& earlier) const;

 private:
  friend class Stream;
  struct State;
  std::unique_ptr<State> state_;
};

/// Makes `stream` this thread's current stream until the end of the scope.
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
