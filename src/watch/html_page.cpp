// The HTML report: a template that contains the run's data as JSON.
#include "qft/core/error.h"
#include "qft/watch/page.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "html.h"

namespace qft::watch {

extern const std::string_view kPageTemplate;  // page.html
extern const std::string_view kReportScript;  // report.js

namespace {

using nlohmann::json;

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

}  // namespace

json points_of(const Curve& curve, std::size_t most) {
  json points = json::array();
  for (const auto& [step, value] : thinned(curve, most)) points.push_back({step, std::isfinite(value) ? json(value) : json()});
  return points;
}

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

}  // namespace qft::watch
