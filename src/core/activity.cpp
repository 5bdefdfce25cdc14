#include "qft/core/activity.h"

#include <atomic>
#include <mutex>

namespace qft::activity {
namespace {

std::atomic<const char*> g_phase{"start"};
std::atomic<std::uint64_t> g_ticks{0};
std::atomic<Wait> g_waiting{Wait::none};
std::atomic<double> g_waited{0.0};

struct Steps {
  std::int64_t last = -1;
  double busy_seconds = 0.0, work = 0.0;
};
std::mutex g_steps_mutex;  // keeps time and work consistent
Steps g_steps;

std::atomic<bool> g_end{false};
std::mutex g_reason_mutex;
std::string g_reason;

}  // namespace

void tick() noexcept {
  g_ticks.fetch_add(1, std::memory_order_relaxed);
}

Phase::Phase(const char* name) noexcept : outer_(g_phase.exchange(name)) {
  tick();
}
Phase::~Phase() {
  g_phase = outer_;
  tick();
}

Waiting::Waiting(Wait what) noexcept : what_(what), start_(std::chrono::steady_clock::now()) {
  Wait before = Wait::none;
  if (!g_waiting.compare_exchange_strong(before, what)) what_ = Wait::none;
}
Waiting::~Waiting() {
  if (what_ == Wait::none) return;
  if (what_ == Wait::ranks)
    g_waited = g_waited + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  g_waiting = Wait::none;
  tick();
}
double waited_seconds() noexcept {
  return g_waited;
}

void step_done(std::int64_t step, double busy_seconds, double work) noexcept {
  {
    const std::lock_guard lock(g_steps_mutex);
    g_steps = {step, g_steps.busy_seconds + busy_seconds, g_steps.work + work};
  }
  tick();
}

State state() noexcept {
  const std::lock_guard lock(g_steps_mutex);
  return {g_phase, g_ticks, g_waiting, g_steps.last, g_steps.busy_seconds, g_steps.work};
}

void request_end(const std::string& reason) {
  const std::lock_guard lock(g_reason_mutex);
  if (g_reason.empty()) g_reason = reason;
  g_end = true;
}

std::string end_reason() {
  if (!g_end) return {};
  const std::lock_guard lock(g_reason_mutex);
  return g_reason;
}

}  // namespace qft::activity
