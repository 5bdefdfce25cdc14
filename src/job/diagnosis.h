// What heartbeats say about a job: a pure function of them.
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

/// What a rank says of itself, as sent over the wire between programs of one build.
struct Heartbeat {
  std::array<char, 64> host{};
  std::array<char, 16> phase{};
  std::array<char, 40> communicator{};  ///< of the last collective
  std::array<char, 96> call{};          ///< "all_reduce(sum, F32, 1024)"
  comm::RecentCollectives recent{};
  comm::AllDeviceCollectives devices{};
  std::array<char, 144> failure{};  ///< comm::device_failure(), the first of it
  std::uint64_t number = 0;         ///< of that call on that communicator, from 1
  std::uint64_t ticks = 0;
  std::int64_t step = -1;
  double busy_seconds = 0.0, work = 0.0;
  std::int32_t rank = 0;
  activity::Wait waiting = activity::Wait::none;
  bool finished = false;  ///< the last one of this rank
};

/// One rank as its watcher knows it.
struct Watched {
  Heartbeat beat;
  double silent_seconds = 0.0;  ///< since its last heartbeat
  double idle_seconds = 0.0;    ///< since its ticks last moved
  double failed_seconds = 0.0;  ///< since it first told of a failure of its device's collectives
};

/// Why the job must end, where a rank is silent or all are stuck for longer than the timeout, and what each rank was at: the
/// text for stderr; nothing if all is well.
std::optional<std::string> diagnose(std::span<const Watched> ranks, double timeout_seconds);
/// The same where ranks call different collectives on 'world', stuck or not. It waits for nothing: if two watchers asked, both
/// would report.
std::optional<std::string> diagnose_mismatch(std::span<const Watched> ranks);

/// The same where the collectives of a rank's device have failed for longer than `patience_seconds`, and it has not ended by
/// itself.
std::optional<std::string> diagnose_failure(std::span<const Watched> ranks, double patience_seconds);

/// Finds ranks that are three times as slow as the others at the same work.
class StragglerWatch {
 public:
  static constexpr std::int64_t kSteps = 10;  ///< of a look
  static constexpr double kFactor = 3.0;
  static constexpr double kWorthSeconds = 0.1;      ///< less than this a step is noise
  static constexpr std::int64_t kQuietSteps = 200;  ///< until a rank is named again
  /// Looks where every rank has done kSteps more. What a rank would take is its work (at least the others' median: little work
  /// says nothing of a pace) at the others' median pace. Those that took kFactor times as long, and noticeably longer, in two
  /// looks running, which no single hiccup is, in words; empty where there is none.
  std::string observe(std::span<const Watched> ranks);

 private:
  /// What one rank has done since the look before.
  struct Share {
    std::int64_t steps = 0;
    double seconds = 0.0, work = 0.0;  ///< a step
    double usual = 0.0;                ///< seconds at the others' pace; 0: not known
    bool slow() const { return usual > 0 && seconds >= kFactor * usual && seconds >= usual + kWorthSeconds; }
  };
  struct Rank {
    std::int64_t step = -1;  ///< at the last look
    double seconds = 0.0, work = 0.0;
    bool slow = false;           ///< in that look
    std::int64_t named_at = -1;  ///< step
  };
  std::vector<Share> shares(std::span<const Watched> ranks) const;
  std::vector<Rank> ranks_;
};

}  // namespace qft::job
