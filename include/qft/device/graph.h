// Work that is recorded once and queued again by one call: CUDA graphs.
#pragma once

#include "qft/device/stream.h"

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace qft::device {

class GraphRecorder;

/// Recorded work. All that it reads and writes must stay at the addresses that it had when it was captured.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues the work on the current stream. CPU: does it.
  virtual void replay() = 0;
};

/// What the graphs of one device have in common: the stream on which they are captured, and on CUDA the memory for what
/// their work allocates and frees again. All of them run one after another, none beside another, and go
/// before the pool does. For one thread.
class GraphPool {
 public:
  explicit GraphPool(c10::Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Runs `work` in the order of the current stream, on the one for captures: libraries make workspaces for a stream at
  /// its first use, which must not happen in a capture.
  void warm_up(const std::function<void()>& work) const;

  /// `work` as a graph; it is not done yet. CUDA: runs `work`, which queues nothing; it must neither wait for the device
  /// nor keep memory that it allocates. CPU, and devices that cannot record: keeps it, with all that it holds, and replay()
  /// runs it, so that whatever a graph would not see, such as a tensor that has moved since, is not seen here either.
  /// Throws what `work` throws, and c10::Error where CUDA cannot record it.
  std::unique_ptr<Graph> capture(std::function<void()> work) const;

 private:
  c10::Device device_;
  Stream stream_;
  std::unique_ptr<GraphRecorder> recorder_;  ///< null on the CPU, and where the device cannot record
};

}  // namespace qft::device
