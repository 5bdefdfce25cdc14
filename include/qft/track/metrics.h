// The log of a run as metrics with names: one list for all trackers, for `qft watch` and the report.
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
  std::string name;  ///< as transformers logs it: loss, learning_rate, eval_loss; others with a group: system/..., seconds/...
  double value = 0.0;
  std::int64_t step = 0;
  double time = 0.0;  ///< Unix time
};

/// Whether a key of a log line is a metric by its own name: "rewards/chosen", "eval_accuracy".
bool names_metric(std::string_view key);

/// The metrics of a line of trainer_log.jsonl; none of what is no log line. `time`: where the line has none.
std::vector<Metric> metrics_of(const nlohmann::json& line, double time);

/// The whole lines of a trainer_log.jsonl that grows, or that a resumed run replaces.
class LogFollower {
 public:
  explicit LogFollower(std::filesystem::path path) : path_(std::move(path)) {}

  /// The lines after those that were taken, at most `most`; none while there is no file. What is no JSON is left out. Throws
  /// Error where the file cannot be read.
  std::vector<nlohmann::json> next(std::size_t most);
  /// What next() returned last is done with: the next call goes on behind it.
  void take() { taken_ = seen_; }
  /// Since the last call the file was replaced or cut: next() began again at its first line.
  bool restarted();

 private:
  std::filesystem::path path_;
  std::uint64_t taken_ = 0, seen_ = 0;  ///< bytes
  std::uint64_t inode_ = 0;
  bool restarted_ = false;
};

/// The steps up to which a tracker has each metric.
class LastSteps {
 public:
  /// Notes that the metric is there at this step.
  void add(const std::string& name, std::int64_t step);
  /// Forgets what comes after `step`.
  void cut(std::int64_t step);
  /// Whether the metric is later than what is there.
  bool is_new(const Metric& metric) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> last_;
};

}  // namespace qft::track
