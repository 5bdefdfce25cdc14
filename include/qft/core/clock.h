// Seconds as a number, and the seconds of a scope.
#pragma once

#include <chrono>

namespace qft {

/// Returns seconds on the steady clock since an unspecified moment; use differences only.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Returns seconds since 1970 on the system clock.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Adds the duration of a scope to a counter of seconds, which must outlive it.
class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total) {}
  ~Stopwatch() { total_ += steady_seconds() - start_; }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  double start_ = steady_seconds();
};

}  // namespace qft
