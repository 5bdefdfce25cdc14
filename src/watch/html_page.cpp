// The page of HTML: a template with the run's data as JSON in it.
#include "qft/core/error.h"
#include "qft/watch/page.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace qft::watch {

extern const std::string_view kReportTemplate;  // report.html

namespace {

using nlohmann::json;

/// Points of a curve in the page at most: more are no wider than a screen's dots.
constexpr std::size_t kPoints = 3000;
/// Points of all curves of the machine at most, and of all others: each GPU and node has some of its own.
constexpr std::size_t kAllPoints = 150'000;

constexpr std::string_view kPhase = "seconds/", kMachine = "system/";

/// Of more points than the page holds the lowest and the highest of each run of neighbours: no spike is lost.
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

json to_json(const Curve& curve) {
  json points = json::array();
  for (const auto& [step, value] : curve) points.push_back({step, std::isfinite(value) ? json(value) : json()});
  return points;
}

/// JSON that ends no script element and begins no comment in one: '<' only stands in texts, where it may be \u003c.
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

}  // namespace

std::string html_page(const RunView& run, double now) {
  json curves = json::object(), checkpoints = json::array(), samples = json::array();
  json phases = json::object();  // seconds of all log lines
  const auto is_machine = [](const auto& curve) { return curve.first.starts_with(kMachine); };
  const auto of_machine = static_cast<std::size_t>(std::count_if(run.curves.begin(), run.curves.end(), is_machine));
  for (const auto& named : run.curves) {
    const auto& [name, curve] = named;
    const std::size_t alike = is_machine(named) ? of_machine : run.curves.size() - of_machine;
    curves[name] = to_json(thinned(curve, std::clamp(kAllPoints / alike, std::size_t{2}, kPoints)));
    if (!name.starts_with(kPhase)) continue;
    double sum = 0;
    for (const auto& [step, seconds] : curve) sum += std::isfinite(seconds) ? seconds : 0;
    phases[name.substr(kPhase.size())] = sum;
  }
  for (const CheckpointSeen& c : run.checkpoints) checkpoints.push_back({{"name", c.name}, {"time", c.time}});
  for (const Sample& s : run.samples)
    samples.push_back({{"prompt", s.prompt}, {"expected", s.expected}, {"base", s.base}, {"tuned", s.tuned}});
  const json data{{"dir", run.dir.string()},
                  {"description", run.description},
                  {"status", run.status},
                  {"curves", curves},
                  {"last", run.last},
                  {"checkpoints", checkpoints},
                  {"results", run.results},
                  {"samples", samples},
                  {"warnings", run.warnings},
                  {"phases", phases},
                  {"now", now}};
  constexpr std::string_view kPlace = "QFT_DATA";
  const std::size_t at = kReportTemplate.find(kPlace);
  QFT_ASSERT(at != kReportTemplate.npos, "report.html has no place for its data");
  std::string page(kReportTemplate.substr(0, at));
  page += in_script(data);
  page += kReportTemplate.substr(at + kPlace.size());
  return page;
}

}  // namespace qft::watch
