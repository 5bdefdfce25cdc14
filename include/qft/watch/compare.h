// Compares runs from the files in their output_dirs: settings that differ, and results.
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

/// A run and its results; NaN, or -1 for steps, if unknown.
struct ComparedRun {
  std::string name;  ///< its folder's name; the whole path if two names are equal
  RunView view;
  double best_eval_loss = NAN;
  std::int64_t best_eval_step = -1;
  double loss = NAN;  ///< from the last log line
  std::int64_t step = -1, total_steps = -1;
  double tokens_per_second = NAN;  ///< median over the log lines
  double seconds = NAN;            ///< of training since its first step, over all parts of a resumed run
  double memory_peak = NAN;        ///< bytes, largest over ranks
};

struct Comparison {
  std::vector<ComparedRun> runs;  ///< lowest eval_loss first; then runs without one, by last loss
  /// The keys of run.json whose values differ, with one value per run; null if the run does not set the key.
  std::map<std::string, std::vector<nlohmann::json>> differing;
  std::vector<std::string> problems;  ///< unreadable files and incomparable runs, each with its folder or key
  std::size_t left_out = 0;           ///< given directories without a run
  std::filesystem::path page;         ///< default place of the page: the folder around the runs, not an output_dir
};

/// Reads the runs in `dirs`: output_dirs, and folders with several output_dirs, such as a sweep's. Adds directories without a run
/// to `problems`. Throws Error if no directory has a run.
Comparison compare_runs(const std::vector<std::filesystem::path>& dirs);

/// Returns text for a terminal of `width` columns: results, differing keys, curves in letters. A long run name may exceed the
/// width.
std::string compare_text(const Comparison& comparison, int width);

/// Returns one object with the points of all curves except the machine's; at most `points` per curve.
nlohmann::json compare_json(const Comparison& comparison, std::size_t points = std::numeric_limits<std::size_t>::max());

/// Returns a self-contained HTML page. `now`: Unix time.
std::string compare_page(const Comparison& comparison, double now);

/// Writes the page to `file`, or if it is empty to `comparison.page`. Returns the path. Throws Error if the file exists and is
/// not an earlier page; only an earlier page is replaced.
std::filesystem::path write_compare_page(const Comparison& comparison, std::filesystem::path file = {});

}  // namespace qft::watch
