// The state of this process for the watchdog thread: a phase, a step, and a counter of progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace qft::activity {

/// Counts progress. Long local work must call tick() at least once a minute; communicators call it in their operations.
/// Safe on any thread.
void tick() noexcept;

/// Names the main thread's work until the end of the scope. Phases nest. `name` must be a string literal.
class Phase {
 public:
  explicit Phase(const char* name) noexcept;
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const char* outer_;
};

/// The reason why the main thread waits.
enum class Wait : std::uint8_t { none, ranks, device };

/// Marks the main thread as waiting, for other ranks or for its device, during its lifetime. A nested Waiting has no effect.
class Waiting {
 public:
  explicit Waiting(Wait what = Wait::ranks) noexcept;
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Wait what_;  ///< none if nested
  std::chrono::steady_clock::time_point start_;
};
/// Returns the seconds that the main thread has waited for other ranks so far.
double waited_seconds() noexcept;

/// Records the end of a training step. `busy_seconds`: the step's time without the waits for other ranks. `work`: the amount
/// of work in the step, in any unit that all ranks share.
void step_done(std::int64_t step, double busy_seconds, double work) noexcept;

struct State {
  const char* phase = "start";
  std::uint64_t ticks = 0;
  Wait waiting = Wait::none;
  std::int64_t step = -1;                 ///< last finished step; -1: none yet
  double busy_seconds = 0.0, work = 0.0;  ///< sums over all steps of this process
};
State state() noexcept;

/// Asks the main thread to save a checkpoint and end the run. The first reason is kept. Safe on any thread.
void request_end(const std::string& reason);
/// Returns the reason given to request_end(), or "" if the run should go on.
std::string end_reason();

}  // namespace qft::activity
