// The HTML pages of a run and of a comparison: page.html with data as JSON and a script that displays them.
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/io/storage.h"
#include "qft/watch/compare.h"
#include "qft/watch/page.h"
#include "qft/watch/run_view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::watch {

extern const std::string_view kPageTemplate;   // page.html
extern const std::string_view kReportScript;   // report.js
extern const std::string_view kCompareScript;  // compare.js

namespace {

using nlohmann::json;

/// Most points per curve in a page: a screen has fewer dots.
constexpr std::size_t kPoints = 3000;
/// Most points of all machine curves together, and of all other curves together: every GPU, node and run adds curves.
constexpr std::size_t kAllPoints = 150'000;

/// Tag in page.html's head that marks every page as made by qft.
constexpr std::string_view kGenerator = R"(<meta name="generator" content="qft">)";

constexpr std::string_view kPhase = "seconds/", kMachine = "system/";

/// Keeps the lowest and highest of each group of neighbours if the curve has too many points, so that no spike is lost.
Curve thinned(const Curve& curve, std::size_t points) {
  if (curve.size() <= points) return curve;
  const std::size_t share = (2 * curve.size() + points - 1) / points;
  Curve kept;
  for (std::size_t begin = 0; begin < curve.size(); begin += share) {
    const auto first = curve.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = curve.begin() + static_cast<std::ptrdiff_t>(std::min(curve.size(), begin + share));
    auto [low, high] = std::minmax_element(first, last, [](const auto& a, const auto& b) { return a.second < b.second; });
    if (low > high) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

/// Escapes '<' as \u003c, so that the data cannot end a script element or begin a comment in it; '<' occurs only inside texts.
std::string in_script(const json& data) {
  std::string text;
  for (const char c : data.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace)) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

/// Returns [[step, value], ...] with null for values that are not finite. A curve with more points than `most` keeps the lowest
/// and the highest value of neighbouring points.
json points_of(const Curve& curve, std::size_t most) {
  json points = json::array();
  for (const auto& [step, value] : thinned(curve, most)) points.push_back({step, std::isfinite(value) ? json(value) : json()});
  return points;
}

/// Returns page.html with `script`, and with `data` under the name that the script expects.
std::string fill_page(const json& data, std::string_view script) {
  std::string page;
  std::string_view rest = kPageTemplate;
  const std::pair<std::string_view, std::string> fillings[] = {{"QFT_DATA", in_script(data)},
                                                               {"QFT_SCRIPT", std::string(script)}};
  for (const auto& [place, text] : fillings) {
    const std::size_t at = rest.find(place);
    QFT_ASSERT(at != rest.npos, "page.html has no place {}", place);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + place.size());
  }
  return page.append(rest);
}

json finite_or_null(double value) {
  return std::isfinite(value) ? json(value) : json();
}

json step_or_null(std::int64_t step) {
  return step < 0 ? json() : json(step);
}

bool of_machine(const std::string& metric) {
  return metric.starts_with("system/") || metric.starts_with("seconds/");
}

/// True if writing the page loses nothing: the file is absent, empty, or an earlier page.
bool is_replaceable(const std::filesystem::path& file) {
  if (!exists(symlink_status(file))) return true;
  if (!is_regular_file(file)) return false;
  std::string head(512, '\0');
  std::ifstream in(file);
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  return in.gcount() == 0 || head.find(kGenerator) != head.npos;
}

}  // namespace

std::string html_page(const RunView& run, double now) {
  json curves = json::object(), checkpoints = json::array(), samples = json::array();
  json phases = json::object();  // seconds over all log lines
  const auto is_machine = [](const auto& curve) { return curve.first.starts_with(kMachine); };
  const auto of_machine = static_cast<std::size_t>(std::count_if(run.curves.begin(), run.curves.end(), is_machine));
  for (const auto& named : run.curves) {
    const auto& [name, curve] = named;
    const std::size_t alike = is_machine(named) ? of_machine : run.curves.size() - of_machine;
    curves[name] = points_of(curve, std::clamp(kAllPoints / alike, std::size_t{2}, kPoints));
    if (!name.starts_with(kPhase)) continue;
    double sum = 0;
    for (const auto& [step, seconds] : curve) sum += std::isfinite(seconds) ? seconds : 0;
    phases[name.substr(kPhase.size())] = sum;
  }
  for (const CheckpointSeen& c : run.checkpoints) checkpoints.push_back({{"name", c.name}, {"time", c.time}});
  for (const Sample& s : run.samples)
    samples.push_back({{"prompt", s.prompt}, {"expected", s.expected}, {"base", s.base}, {"tuned", s.tuned}});
  const json data{
      {"dir", run.dir.string()}, {"description", run.description}, {"status", run.status},       {"curves", curves},
      {"last", run.last},        {"progress", run.progress},       {"checkpoints", checkpoints}, {"results", run.results},
      {"samples", samples},      {"warnings", run.warnings},       {"phases", phases},           {"now", now}};
  return fill_page(data, kReportScript);
}

json compare_json(const Comparison& c, std::size_t points) {
  json runs = json::array(), differing = json::object();
  for (const ComparedRun& run : c.runs) {
    json curves = json::object();
    for (const auto& [name, curve] : run.view.curves)
      if (!of_machine(name)) curves[name] = points_of(curve, points);
    runs.push_back({{"name", run.name},
                    {"dir", run.view.dir.string()},
                    {"status", run.view.status},
                    {"best_eval_loss", finite_or_null(run.best_eval_loss)},
                    {"best_eval_step", step_or_null(run.best_eval_step)},
                    {"loss", finite_or_null(run.loss)},
                    {"step", step_or_null(run.step)},
                    {"total_steps", step_or_null(run.total_steps)},
                    {"tokens_per_second", finite_or_null(run.tokens_per_second)},
                    {"seconds", finite_or_null(run.seconds)},
                    {"memory_peak", finite_or_null(run.memory_peak)},
                    {"curves", curves}});
  }
  for (const auto& [key, values] : c.differing) differing[key] = values;
  return {{"runs", runs}, {"differing", differing}, {"problems", c.problems}};
}

std::string compare_page(const Comparison& c, double now) {
  const std::size_t curves = std::max<std::size_t>(1, 8 * c.runs.size());
  json data = compare_json(c, std::clamp(kAllPoints / curves, std::size_t{2}, kPoints));
  for (std::size_t i = 0; i < c.runs.size(); ++i) data["runs"][i]["time"] = format_duration(c.runs[i].seconds);
  data["now"] = now;
  return fill_page(data, kCompareScript);
}

std::filesystem::path write_compare_page(const Comparison& c, std::filesystem::path file) {
  if (file.empty()) file = c.page;
  if (!is_replaceable(file))
    fail("'{}' exists and is not a page of qft compare: move it away, or name another file with --report=FILE.html",
         file.string());
  io::atomic_write_file(io::posix_storage(), file, compare_page(c, unix_seconds()));
  return file;
}

}  // namespace qft::watch
