// Trackers that receive a run's metrics besides its own log: TensorBoard, MLflow.
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

/// Folder in output_dir with TensorBoard's files, named as in transformers.
inline constexpr const char* kRunsFolder = "runs";
/// Log file in output_dir: one JSON object per line.
inline constexpr const char* kLogFile = "trainer_log.jsonl";
/// File in output_dir that describes the run.
inline constexpr const char* kRunFile = "run.json";
/// File in output_dir that names the MLflow run to continue after a resume.
inline constexpr const char* kMlflowFile = ".qft-mlflow.json";

/// How a run ended; run.json uses the same words.
enum class Status : std::uint8_t {
  finished,
  stopped,  ///< on request, with a checkpoint to resume from
  failed,
};

std::string_view to_string(Status status);

/// Larger than all steps: a Run with this from_step keeps everything a tracker has.
inline constexpr std::int64_t kKeepAllSteps = std::numeric_limits<std::int64_t>::max();

/// Description of a run for trackers.
struct Run {
  std::filesystem::path output_dir;
  std::string id;                           ///< stays the same when the run is resumed
  std::string name;                         ///< display name; empty: the tracker chooses one
  std::int64_t from_step = 0;               ///< the run continues after this step: a tracker drops its later steps
  std::filesystem::path logging_dir;        ///< TensorBoard's folder; empty: a folder in output_dir/runs
  nlohmann::json settings;                  ///< key: value, without secrets
  std::map<std::string, std::string> tags;  ///< version, ranks, hosts ...
};

/// Time until which a tracker may wait for a server. Any thread may lower it.
class Deadline {
 public:
  void set(double steady) { at_ = steady; }
  bool passed() const;

 private:
  std::atomic<double> at_ = std::numeric_limits<double>::infinity();
};

/// A destination of metrics. A call that throws Error is repeated later; the finished part of open() stays done. Use it from one
/// thread at a time.
class Tracker {
 public:
  virtual ~Tracker() = default;
  virtual std::string_view name() const = 0;
  /// Begins or continues the run. After this, log() skips metrics that the tracker already has.
  virtual void open() = 0;
  virtual void log(std::span<const Metric> metrics) = 0;
  /// Records how the run ended, and stores the results from output_dir if the tracker can.
  virtual void finish(Status status) = 0;
  /// Returns the run's address for the log; empty before open().
  virtual std::string address() const = 0;
};

/// Returns the trackers named by `report_to`, checked against the environment and the table of known trackers. "none" and "" name
/// none, "all" each that can run here. Throws ConfigError with advice for another name, and for MLflow without a server.
std::vector<std::string> chosen_trackers(std::span<const std::string> report_to);

/// Makes one of chosen_trackers().
std::unique_ptr<Tracker> make_tracker(const std::string& name, const Run& run, std::shared_ptr<Deadline> deadline);

/// Reads the run from `description`, the content of run.json in `output_dir` (see description() in train/watching.h). Throws
/// Error if it is missing.
Run run_of(const std::filesystem::path& output_dir, const nlohmann::json& description);

/// Returns the settings without secrets: drops keys that hold tokens or passwords, and strips secrets from addresses.
nlohmann::json without_secrets(const nlohmann::json& settings);

}  // namespace qft::track
