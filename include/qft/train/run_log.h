// The files that a run writes for people and tools: trainer_log.jsonl, trainer_state.json, the loss plots.
#pragma once

#include "qft/track/tracker.h"
#include "qft/train/best_model.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::train {

using track::kLogFile;

/// Seconds spent in each part of the steps since the last log line, on rank 0.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, gather = 0, reduce = 0, optimizer = 0, save = 0;
  double exchange = 0;  ///< of rows among ranks that share matrices; written only if there are any
};

/// One logging step. Losses are token means of that one step over all ranks.
struct LogEntry {
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0.0;
  std::optional<double> loss, eval_loss, grad_norm, learning_rate;
  std::map<std::string, double> metrics;  ///< names accepted by track::names_metric()
  double time = 0.0;                      ///< Unix time; append() sets it
  double elapsed_seconds = 0.0;
  double tokens_per_second = 0.0;                   ///< over all ranks, since the previous entry
  std::int64_t total_tokens = 0, label_tokens = 0;  ///< since the start of training, all ranks
  std::vector<std::int64_t> memory;                 ///< peak bytes per rank
  std::int64_t skipped_updates = 0;                 ///< since the start of training
  PhaseSeconds phases;
  std::map<std::string, std::vector<double>> system;  ///< per node: track/machine_use.h

  /// Returns the completed fraction of the steps; 1 for a run without steps.
  double share_done() const { return total_steps > 0 ? static_cast<double>(step) / static_cast<double>(total_steps) : 1.0; }
  /// Estimates the time left from the mean duration of the steps so far; NaN before the first step.
  double remaining_seconds() const;
};

/// The part of Hugging Face's trainer_state.json that is not history.
struct TrainerState {
  std::int64_t step = 0, total_steps = 0;
  double epoch = 0.0, num_train_epochs = 0.0;
  std::int64_t micro_batch_size = 0;
  BestModel best;
};

/// Owns the run's log; exists on rank 0 only. Every write consists of whole lines and is flushed.
class RunLog {
 public:
  /// Keeps the entries in `dir` up to `from_step`; 0 starts a new log.
  RunLog(std::filesystem::path dir, std::int64_t from_step);

  /// Sets the entry's time and appends it to the file. Throws Error if the file cannot be written.
  void append(LogEntry entry);
  /// Returns the text of Hugging Face's trainer_state.json (with log_history) for a checkpoint or the final result.
  std::string trainer_state(const TrainerState& state) const;
  /// Writes training_loss.svg and training_eval_loss.svg from the entries so far.
  void write_plots() const;
  const std::vector<LogEntry>& entries() const { return entries_; }

 private:
  std::filesystem::path dir_;
  std::vector<LogEntry> entries_;
};

/// Returns an SVG line plot of the points. With more than ten points also plots their exponential moving average.
std::string loss_plot_svg(const std::string& title, const std::vector<std::pair<double, double>>& points);

nlohmann::json to_json(const LogEntry& entry);

}  // namespace qft::train
