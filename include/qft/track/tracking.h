// The trackers of a running job. Each reads trainer_log.jsonl by a thread of its own: that file is the queue, so nothing is lost
// while a server is down, and training never waits.
#pragma once

#include "qft/track/tracker.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qft::track {

/// Seconds that end() waits: after a failure the other ranks wait for this one's report no longer than a few.
inline constexpr double kPatience = 15.0, kPatienceAfterFailure = 2.0;

class Tracking {
 public:
  /// Starts a thread for each tracker, which follows `log`.
  Tracking(const std::vector<std::string>& names, const Run& run, const std::filesystem::path& log);
  /// Ends them as after a failure, unless end() was called.
  ~Tracking();
  Tracking(const Tracking&) = delete;
  Tracking& operator=(const Tracking&) = delete;

  /// Sends what is left and how the run ended. Waits for `patience` seconds at most, and says what could not be sent.
  /// Returns true where all was.
  bool end(Status status, double patience = kPatience);

 private:
  class Feed;
  std::vector<std::unique_ptr<Feed>> feeds_;
};

/// Sends what the trackers `names` lack of the run in `output_dir`, from its files alone; with none, those of its report_to. For
/// a run that has ended, or whose nodes reach no server. Returns a line for each tracker. Throws Error where one does not take
/// it.
std::vector<std::string> send_run(const std::filesystem::path& output_dir, const std::vector<std::string>& names);

}  // namespace qft::track
