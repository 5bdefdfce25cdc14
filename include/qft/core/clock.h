// Seconds as a number.
#pragma once

#include <chrono>

namespace qft {

/// On the steady clock, since some moment in the past: for differences.
inline double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Since 1970, on the system's clock.
inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace qft
