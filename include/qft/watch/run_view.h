// What the files in an output_dir say of its run, as far as it has come. Nothing else is asked: the run may be on other nodes, or
// long over.
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

/// Steps and values, in order of the steps.
using Curve = std::vector<std::pair<std::int64_t, double>>;

struct CheckpointSeen {
  std::string name;  ///< checkpoint-<step>
  double time = 0;   ///< Unix time, by its directory
};

/// A question of the evaluation set and what was answered. An answer that was not asked for is empty.
struct Sample {
  std::string prompt, expected, base, tuned;
};

struct RunView {
  std::filesystem::path dir;
  nlohmann::json description;      ///< run.json; null: an older run, or none yet
  std::string status = "unknown";  ///< running, silent, finished, stopped, failed; unknown without run.json and kProgressFile
  double silent_seconds = 0;       ///< of a run that should be running: since its last sign of life
  std::map<std::string, Curve> curves;
  nlohmann::json progress;                  ///< kProgressFile: what the run is at; null: it is over, or an older qft's
  nlohmann::json last, last_eval;           ///< lines of the log; null: none yet
  nlohmann::json system;                    ///< the last values of the machines, of which not every line tells; null: none yet
  std::vector<CheckpointSeen> checkpoints;  ///< oldest first
  nlohmann::json results;                   ///< all_results.json; null: none
  std::vector<Sample> samples;              ///< at most kSamples
  std::vector<std::string> warnings;

  /// The last value of a metric; NaN where there is none.
  double now(const std::string& metric) const;
};

inline constexpr std::size_t kSamples = 20;

/// The file of output_dir that says what a run is at, from its start to its end: phase, step, total_steps, from_step and
/// from_time (where and when this process began to train), time. No other program has a file of this name. Its writer is
/// train/progress_file.h.
inline constexpr const char* kProgressFile = ".qft-progress.json";

/// Whether a directory has a file of a run.
bool holds_run(const std::filesystem::path& dir);

/// Reads an output_dir again and again; of the log only what is new.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path dir);
  /// Throws Error where the directory is not there, or has no file of a run.
  const RunView& refresh();

 private:
  void read_log();
  void read_status();
  void read_checkpoints();
  void read_samples();
  void look_for_trouble();
  void read_log_file();

  RunView view_;
  track::LogFollower log_;
  double steps_seconds_ = 0;  ///< between the last two log lines
};

}  // namespace qft::watch
