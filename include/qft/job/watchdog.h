// Notices ranks that stopped, hang or wait for each other in vain, and ends the job with their names.
#pragma once

#include "qft/comm/communicator.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace qft::job {

struct WatchdogOptions {
  /// How long a rank may show no sign of life, and how long all ranks together may get nothing done.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds interval{1000};  ///< between heartbeats
  bool stop_stragglers = false;              ///< a rank that falls behind ends the run in good order, else it is a warning
};

/// A thread of its own in each rank sends heartbeats to rank 0, by UDP: outside MPI, which may be what is stuck. They
/// say what the rank is at (activity::State) and its last collective. Rank 0 decides; the other ranks watch rank 0.
/// Each of these ends the job (exit code 1) within timeout + 5 s, with a report of every rank on stderr:
///  - a rank without a heartbeat: stopped, or its node is gone;
///  - ranks that call different collectives: the report has each rank's;
///  - no progress on any rank: the report names the ranks that do not reach a collective in which the others wait, or that
///    wait in another one.
/// A rank that takes three times as long as the others for the same work, 20 steps in a row, is named in a warning on rank 0;
/// with stop_stragglers activity::request_end() asks rank 0's main thread for an end.
/// A rank whose mpirun is gone ends at once.
class Watchdog {
 public:
  /// Collective over `world`, whose rank here runs on `host`. A rank that does not come to it within the timeout ends the
  /// job too. Ranks that cannot reach rank 0 by UDP are named in a warning and not watched.
  Watchdog(comm::Communicator& world, std::string host, const WatchdogOptions& options);
  /// Tells the others that this rank has finished; not collective.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// This process's; throws Error if it has none.
  static Watchdog& current();

  /// From now on; alike on all ranks.
  void set(const WatchdogOptions& options);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qft::job
