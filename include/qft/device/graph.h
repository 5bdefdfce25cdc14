// Work that is recorded once and then queued by one call: CUDA graphs.
#pragma once

#include "qft/device/stream.h"

#include <functional>
#include <memory>

#include <c10/core/Device.h>

namespace qft::device {

class GraphRecorder;

/// Recorded work. All memory that it reads and writes must keep its address from the capture on.
class Graph {
 public:
  virtual ~Graph() = default;
  /// Queues the work on the current stream. On the CPU: runs it.
  virtual void replay() = 0;
};

/// State shared by the graphs of one device: the capture stream and, on CUDA, the memory that their work allocates and frees. The
/// graphs must run one after another, never at the same time, and must be destroyed before the pool. For one thread.
class GraphPool {
 public:
  explicit GraphPool(c10::Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// Runs `work` on the capture stream, in the order of the current stream. Libraries allocate workspaces at the first use of a
  /// stream, which must not happen in a capture.
  void warm_up(const std::function<void()>& work) const;

  /// Captures `work` as a graph, without executing it. CUDA: calls `work`, which queues nothing; it must neither wait for the
  /// device nor keep memory that it allocates. CPU, and devices that cannot record: stores `work` with all that it holds, and
  /// replay() calls it; so a tensor that has moved since goes unnoticed there, as in a real graph. Throws the exceptions of
  /// `work`, and c10::Error if CUDA cannot record it.
  std::unique_ptr<Graph> capture(std::function<void()> work) const;

 private:
  c10::Device device_;
  Stream stream_;
  std::unique_ptr<GraphRecorder> recorder_;  ///< null on the CPU, and if the device cannot record
};

}  // namespace qft::device
