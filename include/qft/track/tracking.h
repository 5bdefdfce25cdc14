// The trackers of a running job. Each reads trainer_log.jsonl in its own thread. That file is the queue, so nothing is lost while
// a server is down, and training never waits.
#pragma once

#include "qft/track/tracker.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qft::track {

/// Seconds that end() waits. After a failure the time is short, because the other ranks wait for this rank's report.
inline constexpr double kFinishSeconds = 15.0, kFinishSecondsAfterFailure = 2.0;

class Tracking {
 public:
  /// Starts one thread per tracker that follows `log`.
  Tracking(const std::vector<std::string>& names, const Run& run, const std::filesystem::path& log);
  /// Ends the trackers as after a failure, unless end() was called.
  ~Tracking();
  Tracking(const Tracking&) = delete;
  Tracking& operator=(const Tracking&) = delete;

  /// Sends the rest of the log and how the run ended. Waits for at most `max_seconds`, and logs what it could not send.
  /// Returns true if everything was sent.
  bool end(Status status, double max_seconds = kFinishSeconds);

 private:
  class Feed;
  std::vector<std::unique_ptr<Feed>> feeds_;
};

/// Sends the missing part of the run in `output_dir` to the trackers `names` (none: the run's report_to), using only its files.
/// For runs that have ended, or whose nodes reach no server. Returns one line per tracker. Throws Error if a tracker rejects it.
std::vector<std::string> send_run(const std::filesystem::path& output_dir, const std::vector<std::string>& names);

}  // namespace qft::track
