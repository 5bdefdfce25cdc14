// Runs side by side, from the files in their output_dirs: what they were set to differently, and what came of it.
#pragma once

#include "qft/watch/run_view.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::watch {

/// A run and its figures; NaN, or -1 for steps: not known.
struct ComparedRun {
  std::string name;  ///< its folder, with as much before it as tells it from the others
  RunView view;
  double best_eval_loss = NAN;
  std::int64_t best_eval_step = -1;
  double loss = NAN;  ///< of the last log line
  std::int64_t step = -1, total_steps = -1;
  double tokens_per_second = NAN;  ///< the median of the log lines
  double seconds = NAN;            ///< of training, from its first step, in all parts of a run that was stopped
  double memory_peak = NAN;        ///< bytes, of the rank that took most
};

struct Comparison {
  std::vector<ComparedRun> runs;  ///< the lowest eval_loss first; those without one behind, by their last loss
  /// The keys of run.json whose values differ, with a value for each of `runs`; null: none is given.
  std::map<std::string, std::vector<nlohmann::json>> differing;
  std::vector<std::string> problems;  ///< what could not be read, or not be compared, each naming its folder or key
  std::size_t left_out = 0;           ///< directories that were named and show no run
  std::filesystem::path page;         ///< where a page about them belongs: no output_dir, but the folder around
};

/// Reads the runs in `dirs`: output_dirs, and folders that hold several of them, as a sweep's does. A directory that holds no
/// run is one of `problems`. Throws Error where none does.
Comparison compare_runs(const std::vector<std::filesystem::path>& dirs);

/// For a terminal of `width` columns: figures, differing keys, curves in letters. A long name of a run makes its line longer.
std::string compare_text(const Comparison& comparison, int width);

/// One object, with the points of all curves but those of the machine; of each at most `points`.
nlohmann::json compare_json(const Comparison& comparison, std::size_t points = std::numeric_limits<std::size_t>::max());

/// A page of its own: it loads nothing. `now`: Unix time.
std::string compare_page(const Comparison& comparison, double now);

/// Writes the page to `file`, or, if that is empty, to its `page`. Returns its path. Throws Error if something else has
/// that name than an earlier page, which alone is replaced.
std::filesystem::path write_compare_page(const Comparison& comparison, std::filesystem::path file = {});

}  // namespace qft::watch
