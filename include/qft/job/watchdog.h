// Notices ranks that stopped, hang, or wait for each other forever, and ends the job with their names.
#pragma once

#include "qft/comm/communicator.h"

#include <chrono>
#include <memory>
#include <string>

namespace qft::job {

/// Timing and behaviour of a Watchdog.
struct WatchdogOptions {
  /// The longest silence of a rank, and the longest time without progress on all ranks.
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  std::chrono::milliseconds interval{1000};  ///< between heartbeats
  bool stop_stragglers = false;              ///< end the run with a checkpoint if a rank falls behind; else only warn
};

/// In each rank a separate thread sends heartbeats to rank 0 by UDP: outside MPI, because MPI itself may be stuck. A heartbeat
/// has the rank's activity::State and its last collective. Rank 0 decides; the other ranks watch rank 0. Each of these cases ends
/// the job (exit code 1) within timeout + 5 s, with a report of every rank on stderr:
///  - a rank sends no heartbeats: it stopped, or its node is gone;
///  - ranks call different collectives: the report lists each rank's;
///  - no rank makes progress: the report names the ranks that do not reach the collective in which the others wait, or
///    that wait in another one.
/// A rank that takes three times as long as the others for the same work, in 20 consecutive steps, is named in a warning on rank
/// 0; with stop_stragglers activity::request_end() asks rank 0's main thread to end the run. If mpirun is gone, its ranks end at
/// once.
class Watchdog {
 public:
  /// Collective over `world`. `host`: this rank's host name. A rank that does not arrive here within the timeout also ends the
  /// job. Ranks that cannot reach rank 0 by UDP are named in a warning and not watched.
  Watchdog(comm::Communicator& world, std::string host, const WatchdogOptions& options);
  /// Tells the other ranks that this rank has finished. Not collective.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Returns this process's watchdog; throws Error if there is none.
  static Watchdog& current();

  /// Changes the options from now on; call with the same options on all ranks.
  void set(const WatchdogOptions& options);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qft::job
