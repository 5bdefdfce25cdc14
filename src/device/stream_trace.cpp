#include "qft/device/stream_trace.h"

#include "qft/core/clock.h"

#include <mutex>
#include <optional>
#include <vector>

namespace qft::device {

/// Work on a stream, between two events.
struct StreamMarks {
  std::string lane, name;
  Stream stream;
  Event begin, end;
};

namespace {

/// The work recorded since start_stream_trace().
struct Recording {
  std::mutex mutex;
  std::optional<Event> origin;
  double origin_seconds = 0.0;  ///< steady_seconds() at `origin`
  std::vector<std::shared_ptr<StreamMarks>> finished;
};

Recording& recording() {
  static Recording one;
  return one;
}

}  // namespace

void start_stream_trace(c10::Device device) {
  if (device.is_cpu()) return;
  Recording& r = recording();
  const std::lock_guard lock(r.mutex);
  r.finished.clear();
  r.origin.emplace(device, /*timing=*/true);
  r.origin->record(Stream::current(device));
  r.origin->synchronize();
  r.origin_seconds = steady_seconds();
}

void stop_stream_trace() {
  Recording& r = recording();
  const std::lock_guard lock(r.mutex);
  if (!r.origin) return;
  const auto seconds = [&](const Event& event) { return r.origin_seconds + event.milliseconds_since(*r.origin) / 1e3; };
  for (const auto& work : r.finished) {
    work->end.synchronize();
    trace::add({work->lane, work->name, seconds(work->begin), seconds(work->end)});
  }
  r.finished.clear();
  r.origin.reset();
}

void StreamSpan::begin(const Stream& stream, std::string_view lane, std::string name) {
  marks_ = std::make_shared<StreamMarks>(StreamMarks{std::string(lane), std::move(name), stream,
                                                     Event(stream.device(), /*timing=*/true),
                                                     Event(stream.device(), /*timing=*/true)});
  marks_->begin.record(stream);
}

StreamSpan::~StreamSpan() {
  if (!marks_) return;
  marks_->end.record(marks_->stream);
  Recording& r = recording();
  const std::lock_guard lock(r.mutex);
  if (r.origin) r.finished.push_back(std::move(marks_));
}

}  // namespace qft::device
