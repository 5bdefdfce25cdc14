// Records what this process does and when, for a trace file. Off unless start() was called: then a scope costs one atomic load.
#pragma once

#include "qft/core/clock.h"

#include <atomic>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qft::trace {

/// A finished piece of work. Times are steady_seconds().
struct Span {
  std::string lane;  ///< the thread or stream that did the work: "main thread", "loader", "stream: compute"
  std::string name;
  double begin = 0.0, end = 0.0;
};

namespace detail {
extern std::atomic<bool> recording;
}

/// True between start() and stop(). Any thread.
inline bool recording() noexcept {
  return detail::recording.load(std::memory_order_relaxed);
}

/// Begins a recording without spans.
void start();
/// Ends the recording and returns its spans, in the order in which they were added.
std::vector<Span> stop();
/// Adds a span if recording. Any thread.
void add(Span span);

/// The lane of the thread that trains.
inline constexpr std::string_view kMainThread = "main thread";

/// Records the time from construction to destruction as a span.
class Scope {
 public:
  Scope(std::string_view lane, std::string_view name) {
    if (recording()) begin(lane, std::string(name));
  }
  /// Calls `name` only if recording.
  template <std::invocable Name>
  Scope(std::string_view lane, Name&& name) {
    if (recording()) begin(lane, std::invoke(std::forward<Name>(name)));
  }
  ~Scope() {
    if (span_.begin == 0.0) return;
    span_.end = steady_seconds();
    add(std::move(span_));
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void begin(std::string_view lane, std::string name) { span_ = {std::string(lane), std::move(name), steady_seconds(), 0.0}; }
  Span span_;  ///< begin 0: not recorded
};

}  // namespace qft::trace
