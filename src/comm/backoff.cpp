#include "backoff.h"

#include <algorithm>
#include <sched.h>
#include <thread>

namespace qft::comm {

std::chrono::microseconds poll_interval(std::chrono::steady_clock::duration since, std::chrono::microseconds least) {
  constexpr std::chrono::microseconds kLongest{1000};
  return std::clamp(std::chrono::duration_cast<std::chrono::microseconds>(since / 64), least, kLongest);
}

void Backoff::pause() const {
  constexpr std::chrono::milliseconds kBusy{1};
  constexpr std::chrono::microseconds kShortest{20};
  if (const auto so_far = waited(); so_far < kBusy) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(poll_interval(so_far, kShortest));
  }
}

}  // namespace qft::comm
