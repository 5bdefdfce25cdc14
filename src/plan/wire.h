// A link that carries transfers one after another. Private to plan.
#pragma once

#include "qft/plan/machine.h"

#include <algorithm>

namespace qft::plan {

class Wire {
 public:
  explicit Wire(Link link) : link_(link) {}

  /// When a transfer of so many bytes that starts at `now` is complete.
  double start(double now, double bytes, int hops) {
    if (bytes <= 0.0) return now;
    const double takes = bytes / link_.bytes_per_second;
    busy_ += takes;
    alone_ += takes + hops * link_.latency;
    free_ = std::max(free_, now) + takes;
    return std::max(free_, now + takes + hops * link_.latency);
  }
  /// Until when it is busy with what has been started.
  double free() const { return free_; }
  double busy() const { return busy_; }
  /// Seconds of all transfers, if each waited for the one before, with their latencies.
  double alone() const { return alone_; }
  const Link& link() const { return link_; }

 private:
  Link link_;
  double free_ = 0, busy_ = 0, alone_ = 0;
};

/// When work of `seconds` that starts at `now` is done, if until `busy_until` only `share` of the cores is left to it.
inline double finish_of(double now, double seconds, double busy_until, double share) {
  const double slow = std::max(0.0, busy_until - now);
  if (seconds <= slow * share) return now + seconds / share;
  return now + slow + seconds - slow * share;
}

}  // namespace qft::plan
