// Seconds as a number.
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

}  // namespace qft
