// Between two looks at what another rank, a network or a device does.
#pragma once

#include <chrono>

namespace qft::comm {

/// How long to sleep before the next look at transfers of which none has completed for `since`: a look costs
/// a core some microseconds, and a slow wire has nothing new for milliseconds.
std::chrono::microseconds look_interval(std::chrono::steady_clock::duration since, std::chrono::microseconds least);

/// How long an operation is given to end once its buffers are about to go.
inline constexpr std::chrono::seconds kLastWait{3};

/// Of somebody who waits for one thing: busy for its first millisecond, because most are over by then and a nap costs more than
/// that, then naps that grow with what has been waited.
class Patience {
 public:
  std::chrono::steady_clock::duration waited() const { return std::chrono::steady_clock::now() - start_; }
  void pause() const;

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Looks until `done()` is true.
template <class Done>
void wait_until(Done&& done) {
  for (const Patience patience; !done();) patience.pause();
}

}  // namespace qft::comm
