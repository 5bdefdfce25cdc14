#include "qft/track/tracking.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/io/file.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace qft::track {
namespace {

/// Lines per call.
constexpr std::size_t kLines = 50;
/// Seconds between polls of the log, and between attempts while a tracker does not answer: these double up to the last value.
constexpr double kLook = 1.0, kRetry = 2.0, kLongestRetry = 60.0;

/// Sends the next lines; returns false if there are none.
bool send_lines(Tracker& tracker, LogFollower& log) {
  std::vector<Metric> metrics;
  const auto lines = log.next(kLines);
  for (const auto& line : lines)
    for (Metric& m : metrics_of(line, unix_seconds())) metrics.push_back(std::move(m));
  if (!metrics.empty()) tracker.log(metrics);
  log.take();
  return !lines.empty();
}

}  // namespace

/// A tracker, its position in the log, and its thread.
class Tracking::Feed {
 public:
  Feed(const std::string& name, const Run& run, const std::filesystem::path& log)
      : output_dir_(run.output_dir.string()),
        deadline_(std::make_shared<Deadline>()),
        tracker_(make_tracker(name, run, deadline_)),
        log_(log) {
    thread_ = start_thread([this] { run_thread(); });
  }
  ~Feed() {
    if (thread_.joinable()) thread_.join();
  }
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  void ask_to_end(Status status, double until) {
    deadline_->set(until);
    const std::lock_guard lock(mutex_);
    status_ = status;
    wake_.notify_all();
  }
  /// Call after ask_to_end().
  bool join() {
    thread_.join();
    if (!done_)
      log::warn("{} lacks a part of this run{}: `qft track {}` sends the rest once the tracker answers", tracker_->name(),
                fault_.empty() ? "" : fmt::format(" ({})", fault_), output_dir_);
    return done_;
  }

 private:
  void run_thread() {
    double wait = kLook;
    for (;;) {
      std::optional<Status> status;
      {
        const std::lock_guard lock(mutex_);
        status = status_;
      }
      wait = advance(status) ? kLook : std::clamp(wait * 2, kRetry, kLongestRetry);
      if (done_ || deadline_->passed()) return;
      std::unique_lock lock(mutex_);
      // Shorter waits at the end, because little time is left.
      const auto seconds = std::chrono::duration<double>(status_ ? kLook : wait);
      wake_.wait_for(lock, seconds, [&] { return status_ != status; });
    }
  }

  /// Sends new lines; returns false if the tracker fails. Only the first failure is logged.
  bool advance(std::optional<Status> status) {
    try {
      send(status);
      if (warned_ && !fault_.empty()) log::info("{} answers again: the missing lines were sent", tracker_->name());
      fault_.clear();
      return true;
    } catch (const std::exception& e) {
      fault_ = e.what();
      if (!warned_) log::warn("{}: {}; training continues, and the missing lines are sent later", tracker_->name(), fault_);
      warned_ = true;
      return false;
    }
  }

  void send(std::optional<Status> status) {
    if (!opened_) {
      tracker_->open();
      opened_ = true;
      log::info("{}: metrics go to {}", tracker_->name(), tracker_->address());
    }
    while (send_lines(*tracker_, log_)) {
    }
    if (!status) return;
    tracker_->finish(*status);
    done_ = true;
  }

  std::string output_dir_;
  std::shared_ptr<Deadline> deadline_;
  std::unique_ptr<Tracker> tracker_;
  LogFollower log_;
  bool opened_ = false, warned_ = false, done_ = false;  ///< owned by the thread until it is joined
  std::string fault_;                                    ///< of the last attempt; empty: it succeeded
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Status> status_;
  std::thread thread_;
};

Tracking::Tracking(const std::vector<std::string>& names, const Run& run, const std::filesystem::path& log) {
  for (const std::string& name : names) feeds_.push_back(std::make_unique<Feed>(name, run, log));
}

Tracking::~Tracking() {
  end(Status::failed, kFinishSecondsAfterFailure);
}

bool Tracking::end(Status status, double max_seconds) {
  const double until = steady_seconds() + max_seconds;
  for (auto& feed : feeds_) feed->ask_to_end(status, until);
  bool all = true;
  for (auto& feed : feeds_) all = feed->join() && all;
  feeds_.clear();
  return all;
}

std::vector<std::string> send_run(const std::filesystem::path& output_dir, const std::vector<std::string>& names) {
  const std::filesystem::path file = output_dir / kRunFile;
  require(std::filesystem::exists(file), "'{}' does not exist: check that '{}' is the output_dir of a run", file.string(),
          output_dir.string());
  const nlohmann::json description = io::read_json(file);
  Run run = run_of(output_dir, description);
  auto asked = names;
  if (const auto given = run.settings.find("report_to"); names.empty() && given != run.settings.end() && given->is_array())
    asked = given->get<std::vector<std::string>>();
  const auto chosen = chosen_trackers(asked);
  if (chosen.empty()) fail_config("report_to of the run is none: name a tracker, such as --to mlflow");
  run.from_step = kKeepAllSteps;  // keeps everything the tracker has
  std::vector<std::string> report;
  for (const std::string& name : chosen) {
    const auto tracker = make_tracker(name, run, std::make_shared<Deadline>());
    LogFollower log(output_dir / kLogFile);
    tracker->open();
    while (send_lines(*tracker, log)) {
    }
    for (const Status status : {Status::finished, Status::stopped, Status::failed})
      if (description.at("status") == to_string(status)) tracker->finish(status);
    report.push_back(fmt::format("{} has the whole run of '{}': {}", name, output_dir.string(), tracker->address()));
  }
  return report;
}

}  // namespace qft::track
