// State of a run, read only from the files in its output_dir: the run may be on other nodes, or have ended long ago.
#pragma once

#include "qft/track/metrics.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::watch {

/// Steps and values, in step order.
using Curve = std::vector<std::pair<std::int64_t, double>>;

struct CheckpointSeen {
  std::string name;  ///< checkpoint-<step>
  double time = 0;   ///< Unix time of its directory
};

/// A question of the evaluation set and its answers; an answer that was not requested is empty.
struct Sample {
  std::string prompt, expected, base, tuned;
};

struct RunView {
  std::filesystem::path dir;
  nlohmann::json description;      ///< run.json; null: an older run, or not written yet
  std::string status = "unknown";  ///< running, silent, finished, stopped, failed; unknown without run.json and kProgressFile
  double silent_seconds = 0;       ///< time since the last sign of life of a run with status silent
  std::map<std::string, Curve> curves;
  nlohmann::json progress;         ///< kProgressFile: current phase and step; null: the run ended, or an older qft wrote it
  nlohmann::json last, last_eval;  ///< lines of the log; null: none yet
  nlohmann::json system;           ///< last values of the machines, which not every line has; null: none yet
  std::vector<CheckpointSeen> checkpoints;  ///< oldest first
  nlohmann::json results;                   ///< all_results.json; null: none
  std::vector<Sample> samples;              ///< at most kSamples
  std::vector<std::string> warnings;

  /// Returns a metric's last value; NaN if there is none.
  double now(const std::string& metric) const;
};

inline constexpr std::size_t kSamples = 20;

/// File in output_dir with the current state, from the run's start to its end: phase, step, total_steps, from_step and from_time
/// (step and time at which this process began to train), time. No other program uses this name. Written by
/// train/progress_file.h.
inline constexpr const char* kProgressFile = ".qft-progress.json";

/// True if a directory has a file of a run.
bool is_run_dir(const std::filesystem::path& dir);

/// Reads an output_dir repeatedly; reads only the new part of the log.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path dir);
  /// Throws Error if the directory does not exist, or has no file of a run.
  const RunView& refresh();

 private:
  void read_log();
  void read_status();
  void read_checkpoints();
  void read_samples();
  void find_warnings();
  void read_log_file();

  RunView view_;
  track::LogFollower log_;
  double steps_seconds_ = 0;  ///< time between the last two log lines
};

}  // namespace qft::watch
