// Turns a run's log into named metrics, shared by all trackers, `qft watch` and the report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::track {

/// A value at a step.
struct Metric {
  std::string name;  ///< transformers' name: loss, learning_rate, eval_loss; others have a group: system/..., seconds/...
  double value = 0.0;
  std::int64_t step = 0;
  double time = 0.0;  ///< Unix time
};

/// True if the key of a log line is itself a metric name: "rewards/chosen", "eval_accuracy".
bool names_metric(std::string_view key);

/// Returns the metrics in a line of trainer_log.jsonl; none if it is not a log line. `time` is used if the line has no time.
std::vector<Metric> metrics_of(const nlohmann::json& line, double time);

/// Reads complete lines of a trainer_log.jsonl that grows, or that a resumed run replaces.
class LogFollower {
 public:
  explicit LogFollower(std::filesystem::path path) : path_(std::move(path)) {}

  /// Returns at most `most` lines after the taken ones; none if there is no file. Skips lines that are not JSON. Throws Error if
  /// the file cannot be read.
  std::vector<nlohmann::json> next(std::size_t most);
  /// Marks the lines that next() returned last as done: the next call continues after them.
  void take() { taken_ = seen_; }
  /// True if the file was replaced or truncated since the last call, so that next() began again at its first line.
  bool restarted();

 private:
  std::filesystem::path path_;
  std::uint64_t taken_ = 0, seen_ = 0;  ///< bytes
  std::uint64_t inode_ = 0;
  bool restarted_ = false;
};

/// The last step of each metric that a tracker has.
class LastSteps {
 public:
  /// Records that the metric exists at this step.
  void add(const std::string& name, std::int64_t step);
  /// Forgets all steps after `step`.
  void cut(std::int64_t step);
  /// True if the metric is later than its last step.
  bool is_new(const Metric& metric) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> last_;
};

}  // namespace qft::track
