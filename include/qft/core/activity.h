// What this process is doing, for the watchdog's thread: a phase, a step, and a counter of progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace qft::activity {

/// Counts progress. Long local work must call it at least once a minute; communicators' operations do so themselves.
/// Any thread.
void tick() noexcept;

/// Names what the main thread does until the end of the scope. Phases nest. `name` is a literal.
class Phase {
 public:
  explicit Phase(const char* name) noexcept;
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  const char* outer_;
};

/// What the main thread waits for.
enum class Wait : std::uint8_t { none, ranks, device };

/// While it lives the main thread waits: for other ranks, or for its device. Nested in another one it says nothing.
class Waiting {
 public:
  explicit Waiting(Wait what = Wait::ranks) noexcept;
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Wait what_;  ///< none: nested
  std::chrono::steady_clock::time_point start_;
};
/// What the main thread has waited for other ranks so far.
double waited_seconds() noexcept;

/// A training step is over; `busy_seconds` of it were this rank's own part, not waiting for others, and `work` (in any unit
/// that is the same on all ranks) is what there was to do in it.
void step_done(std::int64_t step, double busy_seconds, double work) noexcept;

struct State {
  const char* phase = "start";
  std::uint64_t ticks = 0;
  Wait waiting = Wait::none;
  std::int64_t step = -1;                 ///< last one done; -1: none yet
  double busy_seconds = 0.0, work = 0.0;  ///< of all steps of this process
};
State state() noexcept;

/// Asks the main thread to save a checkpoint and end the run, for the reason given; the first reason counts. Any thread.
void request_end(const std::string& reason);
/// Why the run should end; empty: it should not.
std::string end_reason();

}  // namespace qft::activity
