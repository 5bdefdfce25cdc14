// Where a run's metrics go beside its own log: TensorBoard, MLflow.
#pragma once

#include "qft/track/metrics.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::track {

/// The folder of output_dir that holds TensorBoard's files, as transformers names it.
inline constexpr const char* kRunsFolder = "runs";
/// The log of a run in its output_dir: a JSON object a line.
inline constexpr const char* kLogFile = "trainer_log.jsonl";
/// The file of output_dir that says what its run is.
inline constexpr const char* kRunFile = "run.json";
/// The file of output_dir that says which run of MLflow a run goes on in.
inline constexpr const char* kMlflowFile = ".qft-mlflow.json";

/// How a run ended; run.json has the same words.
enum class Status : std::uint8_t {
  finished,
  stopped,  ///< on request, with a checkpoint to resume from
  failed,
};

std::string_view to_string(Status status);

/// Beyond all steps: a Run that drops none of what a tracker has.
inline constexpr std::int64_t kNoStep = std::numeric_limits<std::int64_t>::max();

/// What a tracker is told of a run.
struct Run {
  std::filesystem::path output_dir;
  std::string id;                           ///< stays the same when the run is resumed
  std::string name;                         ///< for people; empty: the tracker chooses
  std::int64_t from_step = 0;               ///< it goes on behind this step: later ones that a tracker has are computed anew
  std::filesystem::path logging_dir;        ///< of TensorBoard; empty: a folder in output_dir/runs
  nlohmann::json settings;                  ///< key: value, without secrets
  std::map<std::string, std::string> tags;  ///< version, ranks, hosts ...
};

/// Until when a tracker may wait for a server. Any thread may lower it.
class Deadline {
 public:
  void set(double steady) { at_ = steady; }
  bool passed() const;

 private:
  std::atomic<double> at_ = std::numeric_limits<double>::infinity();
};

/// One place where metrics go. A call may throw Error, and is then made again later; what open() has done stays done. One thread
/// at a time.
class Tracker {
 public:
  virtual ~Tracker() = default;
  virtual std::string_view name() const = 0;
  /// Begins the run there, or goes on in it. Metrics that it already has are left out from then on.
  virtual void open() = 0;
  virtual void log(std::span<const Metric> metrics) = 0;
  /// Notes how the run ended, and keeps the results that are in output_dir where it can.
  virtual void finish(Status status) = 0;
  /// Where to look at the run, for the log; empty before open().
  virtual std::string address() const = 0;
};

/// The trackers that `report_to` names, checked against environment and table. "none" and "" are none, "all" is each that can
/// run here. Throws ConfigError for another name, with what to do instead, and for an MLflow without a server.
std::vector<std::string> chosen_trackers(std::span<const std::string> report_to);

/// One of chosen_trackers().
std::unique_ptr<Tracker> make_tracker(const std::string& name, const Run& run, std::shared_ptr<Deadline> deadline);

/// What run.json of `output_dir` tells trackers: description() of train/watching.h wrote it. Throws Error where there is none.
Run run_of(const std::filesystem::path& output_dir, const nlohmann::json& description);

/// The settings without what is secret: keys that hold tokens or passwords, and those in addresses.
nlohmann::json without_secrets(const nlohmann::json& settings);

}  // namespace qft::track
