// Records when a device's streams do their work, as spans of the trace (core/trace.h).
#pragma once

#include "qft/core/trace.h"
#include "qft/device/stream.h"

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <c10/core/Device.h>

namespace qft::device {

/// Relates the device's clock to the host's: call after trace::start(). Waits for the device. No effect on the CPU.
void start_stream_trace(c10::Device device);
/// Adds the spans of the work queued since start_stream_trace() to the trace: call before trace::stop(). Waits for the device.
void stop_stream_trace();

struct StreamMarks;

/// Records when the device does the work that is queued on `stream` between construction and destruction. No effect on the CPU,
/// or if there is no recording. Any thread.
class StreamSpan {
 public:
  /// Calls `name` only if recording. `lane`: the stream's name.
  template <std::invocable Name>
  StreamSpan(const Stream& stream, std::string_view lane, Name&& name) {
    if (trace::recording() && !stream.device().is_cpu()) begin(stream, lane, std::invoke(std::forward<Name>(name)));
  }
  ~StreamSpan();
  StreamSpan(const StreamSpan&) = delete;
  StreamSpan& operator=(const StreamSpan&) = delete;

 private:
  void begin(const Stream& stream, std::string_view lane, std::string name);
  std::shared_ptr<StreamMarks> marks_;  ///< null: not recorded
};

}  // namespace qft::device
