#include "qft/core/trace.h"

#include <mutex>

namespace qft::trace {
namespace {

std::mutex mutex;
std::vector<Span> spans;

}  // namespace

namespace detail {
std::atomic<bool> recording{false};
}

void start() {
  const std::lock_guard lock(mutex);
  spans.clear();
  detail::recording = true;
}

std::vector<Span> stop() {
  const std::lock_guard lock(mutex);
  detail::recording = false;
  return std::exchange(spans, {});
}

void add(Span span) {
  const std::lock_guard lock(mutex);
  if (recording()) spans.push_back(std::move(span));
}

}  // namespace qft::trace
