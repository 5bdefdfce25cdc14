// Diagnoses a job from its heartbeats. Pure functions.
#pragma once

#include "qft/comm/device_collectives.h"
#include "qft/core/activity.h"

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qft::job {

/// The state of a rank, as sent between processes of one build.
struct Heartbeat {
  std::array<char, 64> host{};
  std::array<char, 16> phase{};
  std::array<char, 40> communicator{};  ///< of the last collective
  std::array<char, 96> call{};          ///< "all_reduce(sum, F32, 1024)"
  comm::RecentCollectives recent{};
  comm::AllDeviceCollectives devices{};
  std::array<char, 144> failure{};  ///< start of comm::device_failure()
  std::uint64_t number = 0;         ///< number of that call on that communicator, from 1
  std::uint64_t ticks = 0;
  std::int64_t step = -1;
  double busy_seconds = 0.0, work = 0.0;
  std::int32_t rank = 0;
  activity::Wait waiting = activity::Wait::none;
  bool finished = false;  ///< the rank's last heartbeat
};

/// One rank as seen by its watcher.
struct Watched {
  Heartbeat beat;
  double silent_seconds = 0.0;  ///< since the last heartbeat
  double idle_seconds = 0.0;    ///< since the ticks last changed
  double failed_seconds = 0.0;  ///< since the rank first reported a failure of its device's collectives
};

/// If a rank is silent or all ranks are stuck for longer than the timeout, returns the report for stderr: the reason, and each
/// rank's state. nullopt if all is well.
std::optional<std::string> diagnose(std::span<const Watched> ranks, double timeout_seconds);
/// Reports ranks that call different collectives on 'world', without waiting for a timeout. Only one watcher may call this, or
/// both would report.
std::optional<std::string> diagnose_mismatch(std::span<const Watched> ranks);

/// Reports a rank if its device's collectives failed more than `grace_seconds` ago and the rank has not ended.
std::optional<std::string> diagnose_failure(std::span<const Watched> ranks, double grace_seconds);

/// Finds ranks that take three times as long as the others for the same work.
class StragglerWatch {
 public:
  static constexpr std::int64_t kSteps = 10;  ///< steps between two looks
  static constexpr double kFactor = 3.0;
  static constexpr double kWorthSeconds = 0.1;      ///< smaller differences per step are noise
  static constexpr std::int64_t kQuietSteps = 200;  ///< before a rank is named again
  /// Looks once every rank has done kSteps more steps. A rank's expected time is its work (at least the others' median, because
  /// little work says nothing about the pace) at the others' median pace. Returns a text about the ranks that took kFactor times
  /// as long, and noticeably longer, in two consecutive looks (so that single hiccups do not count); else empty.
  std::string observe(std::span<const Watched> ranks);

 private:
  /// A rank's progress since the previous look.
  struct Share {
    std::int64_t steps = 0;
    double seconds = 0.0, work = 0.0;  ///< per step
    double usual = 0.0;                ///< seconds at the others' pace; 0: unknown
    bool slow() const { return usual > 0 && seconds >= kFactor * usual && seconds >= usual + kWorthSeconds; }
  };
  struct Rank {
    std::int64_t step = -1;  ///< at the previous look
    double seconds = 0.0, work = 0.0;
    bool slow = false;           ///< in the previous look
    std::int64_t named_at = -1;  ///< step at which it was last named
  };
  std::vector<Share> shares(std::span<const Watched> ranks) const;
  std::vector<Rank> ranks_;
};

}  // namespace qft::job
