#include "qft/watch/run_view.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/io/dir_lock.h"
#include "qft/io/file.h"
#include "qft/track/tracker.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sys/stat.h>

#include "members.h"

namespace qft::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kLines = 1000;
constexpr std::string_view kCheckpointPrefix = "checkpoint-";
/// Output of an evaluation with predict_with_generate, and of a comparison with the base.
constexpr const char* kAnswers = "generated_predictions.jsonl";
constexpr const char* kCompared = "compared_predictions.jsonl";

/// Returns the Unix time of the last change; 0 if there is no such file.
double changed(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<double>(info.st_mtim.tv_sec) : 0.0;
}

/// Reads a JSON file that a run may be replacing; null if it is absent or cannot be read.
json read_if(const fs::path& path) {
  try {
    if (fs::exists(path)) return io::read_json(path);
  } catch (const Error&) {
  }
  return {};
}

std::int64_t step_of(const std::string& checkpoint) {
  return std::atoll(checkpoint.c_str() + kCheckpointPrefix.size());
}

}  // namespace

double RunView::now(const std::string& metric) const {
  const auto it = curves.find(metric);
  return it == curves.end() || it->second.empty() ? NAN : it->second.back().second;
}

bool is_run_dir(const fs::path& dir) {
  std::error_code code;
  return std::ranges::any_of(std::initializer_list<const char*>{track::kRunFile, track::kLogFile, kProgressFile},
                             [&](const char* name) { return fs::exists(dir / name, code); });
}

RunReader::RunReader(fs::path dir) : log_(dir / track::kLogFile) {
  view_.dir = std::move(dir);
}

const RunView& RunReader::refresh() {
  io::require_directory(view_.dir, "the output_dir");
  view_.description = read_if(view_.dir / track::kRunFile);
  if (!view_.description.is_object()) view_.description = nullptr;
  if (!is_run_dir(view_.dir))
    fail("'{}' has none of {}, {} and {}: it is not an output_dir of qft train, or training did not begin", view_.dir.string(),
         track::kRunFile, track::kLogFile, kProgressFile);
  view_.progress = read_if(view_.dir / kProgressFile);
  if (!view_.progress.is_object()) view_.progress = nullptr;
  read_log();
  read_checkpoints();
  read_status();
  view_.results = read_if(view_.dir / "all_results.json");
  if (view_.samples.empty()) read_samples();
  find_warnings();
  return view_;
}

void RunReader::read_log() {
  for (;;) {
    const auto lines = log_.next(kLines);
    if (log_.restarted()) view_.curves.clear(), view_.last = view_.last_eval = view_.system = nullptr;
    for (const json& line : lines) {
      const auto metrics = track::metrics_of(line, 0.0);
      if (metrics.empty()) continue;
      if (line.contains("system")) view_.system = line.at("system");
      for (const auto& m : metrics) view_.curves[m.name].emplace_back(m.step, m.value);
      if (!line.contains("loss")) {
        view_.last_eval = line;
        continue;
      }
      if (view_.last.is_object()) steps_seconds_ = number_in(line, "time") - number_in(view_.last, "time");
      view_.last = line;
    }
    log_.take();
    if (lines.empty()) return;
  }
}

void RunReader::read_checkpoints() {
  view_.checkpoints.clear();
  std::error_code code;
  for (fs::directory_iterator it(view_.dir, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(kCheckpointPrefix) && fs::exists(it->path() / "manifest.json", code))
      view_.checkpoints.push_back({name, changed(it->path())});
  }
  std::ranges::sort(view_.checkpoints, {}, [](const CheckpointSeen& c) { return step_of(c.name); });
}

/// A killed run cannot record its end: its lock file is no longer touched. The status of an earlier part of the run counts only
/// while no part is running.
void RunReader::read_status() {
  view_.silent_seconds = 0;
  const bool described = view_.description.is_object();
  view_.status = described ? text_in(view_.description, "status", "unknown") : "unknown";
  const bool begun = view_.progress.is_object();
  if (view_.status != "running" && !begun) return;
  double sign = 0;
  for (const char* name : {io::kLockFile, track::kLogFile, track::kRunFile, kProgressFile})
    sign = std::max(sign, changed(view_.dir / name));
  const double silence = unix_seconds() - sign;
  if (silence <= io::kDeadSeconds && fs::exists(view_.dir / io::kLockFile)) {
    view_.status = "running";
  } else if (view_.status == "running" || !described) {
    view_.status = "silent";
    view_.silent_seconds = std::max(0.0, silence);
  }
  if (view_.status != "running" && view_.status != "silent") view_.progress = nullptr;  // left by a start that was killed early
}

void RunReader::read_samples() {
  const fs::path answers = view_.dir / kAnswers, compared = view_.dir / kCompared;
  std::ifstream in(changed(compared) >= changed(answers) ? compared : answers);
  for (std::string line; view_.samples.size() < kSamples && std::getline(in, line);) {
    const json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object()) continue;
    view_.samples.push_back(
        {text_in(record, "prompt"), text_in(record, "label"), text_in(record, "base"), text_in(record, "predict")});
  }
}

void RunReader::find_warnings() {
  auto& w = view_.warnings;
  w.clear();
  if (view_.status == "silent")
    w.push_back(fmt::format("no sign of life for {}: the job was killed, or its node is gone; submit it again to resume",
                            format_duration(view_.silent_seconds)));
  if (const std::string reason = text_in(view_.description, "error"); view_.status == "failed" && !reason.empty())
    w.push_back(reason);
  if (view_.last.is_null()) return;
  for (const char* metric : {"loss", "grad_norm"})
    if (view_.curves.contains(metric) && !std::isfinite(view_.now(metric)))
      w.push_back(fmt::format("{} of step {:.0f} is {}, which is not finite", metric, number_in(view_.last, "current_steps"),
                              unsigned_nan(view_.now(metric))));
  if (const double skipped = number_in(view_.last, "skipped_updates"); skipped > 0)
    w.push_back(fmt::format("{:.0f} updates were skipped", skipped));
  const double waiting = unix_seconds() - number_in(view_.last, "time");
  if (view_.status == "running" && steps_seconds_ > 0 && waiting > std::max(120.0, 5 * steps_seconds_))
    w.push_back(
        fmt::format("no log line for {}, usually one comes every {}", format_duration(waiting), format_duration(steps_seconds_)));
  const double available = number_in(member(view_.description, "memory"), "available");
  if (const double most = view_.now("memory_peak"); most > available)
    w.push_back(fmt::format("a rank used {}, but only {} are available", format_bytes(most), format_bytes(available)));
  read_log_file();
}

/// Adds the last warnings and errors of rank 0's log file, if the run has one.
void RunReader::read_log_file() {
  constexpr std::streamoff kTail = 64 << 10;
  constexpr std::size_t kShown = 3;
  const std::string folder = text_in(member(view_.description, "settings"), "log_dir");
  if (folder.empty()) return;
  std::ifstream in(fs::path(folder) / "rank-0.log");
  in.seekg(0, std::ios::end);
  in.seekg(std::max<std::streamoff>(0, in.tellg() - kTail));
  std::vector<std::string> said;
  for (std::string line; std::getline(in, line);)
    if (line.find(" warning ") < 32 || line.find(" error ") < 32) said.push_back(line);
  if (said.size() > kShown) said.erase(said.begin(), said.end() - kShown);
  view_.warnings.insert(view_.warnings.end(), said.begin(), said.end());
}

}  // namespace qft::watch
