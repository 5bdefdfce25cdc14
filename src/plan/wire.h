// A link that carries transfers one after another. Private to plan.
#pragma once

#include "qft/plan/machine.h"

#include <algorithm>

namespace qft::plan {

/// The timeline of one link.
class Wire {
 public:
  explicit Wire(Link link) : link_(link) {}

  /// Starts a transfer of `bytes` at `now`; returns the time of its end.
  double start(double now, double bytes, double hops) {
    if (bytes <= 0.0) return now;
    const double takes = bytes / link_.bytes_per_second;
    busy_ += takes;
    alone_ += takes + hops * link_.latency;
    free_ = std::max(free_, now) + takes;
    return std::max(free_, now + takes + hops * link_.latency);
  }
  /// Returns the time until which the started transfers keep the link busy.
  double free() const { return free_; }
  double busy() const { return busy_; }
  /// Returns the sum of all transfers' seconds, latencies included, as if each waited for the one before.
  double alone() const { return alone_; }
  const Link& link() const { return link_; }

 private:
  Link link_;
  double free_ = 0, busy_ = 0, alone_ = 0;
};

/// Returns the end of work that takes `seconds` and starts at `now`, if only `share` of the cores is available until
/// `busy_until`.
inline double finish_of(double now, double seconds, double busy_until, double share) {
  const double slow = std::max(0.0, busy_until - now);
  if (seconds <= slow * share) return now + seconds / share;
  return now + slow + seconds - slow * share;
}

}  // namespace qft::plan
