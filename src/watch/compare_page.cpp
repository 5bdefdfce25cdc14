// A comparison of runs as JSON and as an HTML page.
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/units.h"
#include "qft/io/storage.h"
#include "qft/watch/compare.h"

#include <algorithm>
#include <fstream>

#include "html.h"

namespace qft::watch {

extern const std::string_view kCompareScript;  // compare.js

namespace {

using nlohmann::json;

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
