#include "qft/watch/compare.h"

#include "qft/config/bound_field.h"
#include "qft/core/error.h"
#include "qft/track/tracker.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "members.h"
#include <fmt/ranges.h>

namespace qft::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPageFile = "compare.html";

/// Members of run.json besides the settings. Its global_batch_size is the run's actual value, also if it was not set.
constexpr const char* kBeside[] = {"ranks", "device", "strategy", "version", "total_steps", "global_batch_size"};
/// Keys that determine the data behind an eval_loss.
constexpr const char* kEvalData[] = {"stage", "template", "cutoff_len", "eval_dataset", "eval_pack", "val_size"};

/// Converts "1:02:03" or "02:03" to seconds; NaN for other texts.
double seconds_of(const std::string& clock) {
  double seconds = 0;
  std::size_t parts = 0;
  for (std::size_t begin = 0; begin <= clock.size(); ++parts) {
    const std::size_t end = std::min(clock.find(':', begin), clock.size());
    const std::string part = clock.substr(begin, end - begin);
    if (part.empty() || part.size() > 9 || part.find_first_not_of("0123456789") != part.npos) return NAN;
    seconds = 60 * seconds + std::stod(part);
    begin = end + 1;
  }
  return parts == 2 || parts == 3 ? seconds : NAN;
}

const Curve& curve_of(const RunView& view, const char* name) {
  static const Curve none;
  const auto it = view.curves.find(name);
  return it == view.curves.end() ? none : it->second;
}

double median_of(const Curve& curve) {
  std::vector<double> values;
  for (const auto& [step, value] : curve)
    if (std::isfinite(value)) values.push_back(value);
  if (values.empty()) return NAN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

std::int64_t count_in(const json& object, const char* key) {
  const double value = number_in(object, key);
  return value >= 0 && value < 1e15 ? static_cast<std::int64_t>(value) : -1;
}

ComparedRun figures_of(const RunView& view) {
  ComparedRun run;
  run.view = view;
  for (const auto& [step, value] : curve_of(view, "eval_loss"))
    if (std::isfinite(value) && !(value >= run.best_eval_loss)) run.best_eval_loss = value, run.best_eval_step = step;
  run.loss = view.now("loss");
  run.step = std::max(count_in(view.last, "current_steps"), count_in(view.progress, "step"));
  run.total_steps = std::max(
      {count_in(view.last, "total_steps"), count_in(view.progress, "total_steps"), count_in(view.description, "total_steps")});
  run.tokens_per_second = median_of(curve_of(view, "tokens_per_second"));
  run.seconds = number_in(view.results, "train_runtime");
  if (!std::isfinite(run.seconds)) run.seconds = seconds_of(text_in(view.last, "elapsed_time"));
  run.memory_peak = number_in(view.results, "memory_peak");
  for (const auto& [step, value] : curve_of(view, "memory_peak"))
    if (!(value <= run.memory_peak)) run.memory_peak = value;
  return run;
}

/// Returns the directory if it holds a run, else its subfolders that do.
std::vector<fs::path> run_folders(const fs::path& dir) {
  if (is_run_dir(dir)) return {dir};
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code))
    if (it->is_directory(code) && is_run_dir(it->path())) found.push_back(it->path());
  std::ranges::sort(found);
  return found;
}

void note_damage(const RunView& view, std::vector<std::string>& problems) {
  const std::string dir = view.dir.string();
  std::error_code code;
  const auto has = [&](const char* name) { return fs::exists(view.dir / name, code); };
  if (view.description.is_null() && !view.progress.is_object())
    problems.push_back(fmt::format("'{}': {} {}: settings and status are unknown", dir, track::kRunFile,
                                   has(track::kRunFile) ? "cannot be read" : "is missing"));
  if (view.curves.empty() && has(track::kLogFile) && fs::file_size(view.dir / track::kLogFile, code) > 0)
    problems.push_back(fmt::format("'{}': {} holds no complete log line", dir, track::kLogFile));
  for (const std::string& warning : view.warnings) {
    problems.push_back(fmt::format("'{}': {}", dir, warning));
    if (view.status != "running") break;  // the first one is the reason for the end
  }
}

/// Names runs by folder, or by whole path if two folders have the same name.
void name_runs(std::vector<ComparedRun>& runs) {
  const auto plain_path = [](const fs::path& dir) { return (dir / "").lexically_normal().parent_path(); };
  std::set<std::string> names;
  for (ComparedRun& run : runs) {
    const fs::path dir = plain_path(run.view.dir);
    run.name = (dir.has_filename() && dir != "." && dir != ".." ? dir : plain_path(fs::absolute(dir))).filename().string();
    names.insert(run.name);
  }
  if (names.size() == runs.size()) return;
  for (ComparedRun& run : runs) run.name = plain_path(run.view.dir).string();
}

bool is_better(const ComparedRun& a, const ComparedRun& b) {
  const auto rank = [](double value) { return std::isfinite(value) ? value : INFINITY; };
  return std::tuple(rank(a.best_eval_loss), rank(a.loss), a.name) < std::tuple(rank(b.best_eval_loss), rank(b.loss), b.name);
}

/// Returns a run's settings and the members in kBeside; null without run.json.
json settings_of(const RunView& view) {
  json settings = member(view.description, "settings");
  if (!settings.is_object()) return nullptr;
  for (const char* key : kBeside)
    if (const json value = member(view.description, key); !value.is_null()) settings[key] = value;
  config::RunConfig defaults;
  for (const config::BoundField& bound : config::bound_fields(defaults))
    if (bound.field.per_run_kind != config::Field::PerRun::no) settings.erase(std::string(bound.field.name));
  return settings;
}

void find_differences(Comparison& c) {
  std::vector<json> all;
  std::set<std::string> keys;
  for (const ComparedRun& run : c.runs) {
    all.push_back(settings_of(run.view));
    for (const auto& [key, value] : all.back().items()) keys.insert(key);
  }
  for (const std::string& key : keys) {
    std::vector<json> values;
    std::optional<json> first;
    bool differs = false;
    for (const json& settings : all) {
      values.push_back(member(settings, key.c_str()));
      if (settings.is_null()) continue;  // unknown
      differs |= first && *first != values.back();
      first = values.back();
    }
    if (differs) c.differing[key] = std::move(values);
  }
}

void note_other_data(Comparison& c) {
  std::vector<std::string> keys;
  for (const char* key : kEvalData)
    if (c.differing.contains(key)) keys.emplace_back(key);
  // The held-out share depends on the data.
  const bool holds_out = std::ranges::any_of(
      c.runs, [](const ComparedRun& run) { return number_in(member(run.view.description, "settings"), "val_size") > 0; });
  for (const char* key : {"dataset", "seed", "max_samples"})
    if (holds_out && c.differing.contains(key)) keys.emplace_back(key);
  const auto evaluated = std::ranges::count_if(c.runs, [](const ComparedRun& run) { return std::isfinite(run.best_eval_loss); });
  if (!keys.empty() && evaluated > 1)
    c.problems.push_back(fmt::format("{} differ{}: eval_loss may be over different data or tokens, so do not compare it",
                                     fmt::join(keys, ", "), keys.size() == 1 ? "s" : ""));
}

}  // namespace

Comparison compare_runs(const std::vector<fs::path>& dirs) {
  Comparison c;
  std::set<fs::path> seen;
  for (const fs::path& dir : dirs) {
    const auto folders = run_folders(dir);
    if (folders.empty()) {
      ++c.left_out;
      c.problems.push_back(fs::is_directory(dir)
                               ? fmt::format("'{}' holds no run of qft train, and neither does a folder in it", dir.string())
                               : fmt::format("'{}' is not a directory", dir.string()));
    }
    for (const fs::path& folder : folders) {
      if (!seen.insert(fs::weakly_canonical(folder)).second) continue;
      const bool of_parent = folder != dir;
      if (c.page.empty())
        c.page = (of_parent ? dir : (fs::absolute(dir) / "").lexically_normal().parent_path().parent_path()) / kPageFile;
      RunReader reader(folder);
      c.runs.push_back(figures_of(reader.refresh()));
      note_damage(c.runs.back().view, c.problems);
    }
  }
  if (c.runs.empty()) fail("there is no run to compare: {}", fmt::join(c.problems, "; "));
  name_runs(c.runs);
  std::ranges::sort(c.runs, is_better);
  find_differences(c);
  note_other_data(c);
  return c;
}

}  // namespace qft::watch
