// Sleeping between polls of another rank, a network or a device.
#pragma once

#include <chrono>

namespace qft::comm {

/// Returns how long to sleep before the next poll if no transfer has completed for `since`. A poll costs a core some
/// microseconds, and a slow network has nothing new for milliseconds.
std::chrono::microseconds poll_interval(std::chrono::steady_clock::duration since, std::chrono::microseconds least);

/// Time that an operation gets to end before its buffers are freed.
inline constexpr std::chrono::seconds kFinalWait{3};

/// Paces a thread that waits for one event. Busy for the first millisecond, because most waits are over by then and a nap costs
/// more; then naps that grow with the time waited.
class Backoff {
 public:
  std::chrono::steady_clock::duration waited() const { return std::chrono::steady_clock::now() - start_; }
  void pause() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Polls until `done()` returns true.
template <class Done>
void wait_until(Done&& done) {
  for (const Backoff backoff; !done();) backoff.pause();
}

}  // namespace qft::comm
