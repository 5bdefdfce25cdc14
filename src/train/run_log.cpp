#include "qft/train/run_log.h"

#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/units.h"
#include "qft/io/storage.h"
#include "qft/track/metrics.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace qft::train {
namespace {

using nlohmann::ordered_json;

ordered_json phases_json(const PhaseSeconds& p) {
  return {{"data", p.data},     {"forward", p.forward},     {"backward", p.backward}, {"gather", p.gather},
          {"reduce", p.reduce}, {"optimizer", p.optimizer}, {"save", p.save}};
}

void set_if(ordered_json& json, const char* key, const std::optional<double>& value) {
  if (value) json[key] = json_number(*value);
}

double as_double(const nlohmann::json& json) {
  return json.is_string() ? std::strtod(json.get<std::string>().c_str(), nullptr) : json.get<double>();
}

std::optional<double> get_if(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() ? std::nullopt : std::optional<double>(as_double(*it));
}

LogEntry from_json(const nlohmann::json& json) {
  LogEntry e;
  e.step = json.at("current_steps").get<std::int64_t>();
  e.total_steps = json.at("total_steps").get<std::int64_t>();
  e.epoch = json.at("epoch").get<double>();
  e.loss = get_if(json, "loss");
  e.eval_loss = get_if(json, "eval_loss");
  e.grad_norm = get_if(json, "grad_norm");
  e.learning_rate = get_if(json, "lr");
  for (const auto& [key, value] : json.items())
    if (track::names_metric(key) && (value.is_number() || value.is_string())) e.metrics[key] = as_double(value);
  return e;
}

LogEntry read_entry(const nlohmann::json& json, const std::filesystem::path& path, const std::string& line) {
  try {
    return from_json(json);
  } catch (const nlohmann::json::exception& e) {
    fail("'{}' has a line that is not a log line of a run ({}): {}; move the file away to continue without it", path.string(),
         e.what(), line.substr(0, 100));
  }
}

ordered_json entry_json(const LogEntry& e) {
  ordered_json json = {{"current_steps", e.step}, {"total_steps", e.total_steps}};
  set_if(json, "loss", e.loss);
  set_if(json, "eval_loss", e.eval_loss);
  set_if(json, "grad_norm", e.grad_norm);
  set_if(json, "lr", e.learning_rate);
  for (const auto& [name, value] : e.metrics) json[name] = json_number(value);
  json["epoch"] = e.epoch;
  json["time"] = std::round(e.time * 1e3) / 1e3;
  json["percentage"] = std::round(e.share_done() * 1e4) / 1e2;
  json["elapsed_time"] = format_duration(e.elapsed_seconds);
  json["remaining_time"] = format_duration(e.remaining_seconds());
  json["throughput"] = e.tokens_per_second;
  json["total_tokens"] = e.total_tokens;
  json["label_tokens"] = e.label_tokens;
  if (e.skipped_updates > 0) json["skipped_updates"] = e.skipped_updates;
  json["memory"] = e.memory;
  json["seconds"] = phases_json(e.phases);
  if (!e.system.empty()) json["system"] = e.system;
  return json;
}

using Points = std::vector<std::pair<double, double>>;

constexpr double kWidth = 800, kHeight = 450, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;

struct Range {
  double low, high;
  double at(double value, double from, double to) const { return from + (value - low) / (high - low) * (to - from); }
};

Range range_of(const Points& points, bool of_x) {
  Range r{INFINITY, -INFINITY};
  for (const auto& [x, y] : points) {
    r.low = std::min(r.low, of_x ? x : y);
    r.high = std::max(r.high, of_x ? x : y);
  }
  if (r.high - r.low < 1e-12) {
    r.low -= 0.5;
    r.high += 0.5;
  }
  return r;
}

std::string polyline(const Points& points, const Range& rx, const Range& ry, const char* color, double opacity) {
  std::string path;
  for (const auto& [x, y] : points)
    path += fmt::format("{:.1f},{:.1f} ", rx.at(x, kLeft, kWidth - kRight), ry.at(y, kHeight - kBottom, kTop));
  return fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-opacity=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", color,
                     opacity, path);
}

Points smoothed(const Points& points) {
  Points out;
  double average = points.front().second;
  const double weight = std::min(0.9, 1.0 - 10.0 / static_cast<double>(points.size() + 10));
  for (const auto& [x, y] : points) {
    average = weight * average + (1.0 - weight) * y;
    out.emplace_back(x, average);
  }
  return out;
}

std::string axes(const Range& rx, const Range& ry) {
  std::string svg;
  for (int i = 0; i <= 5; ++i) {
    const double y = ry.low + (ry.high - ry.low) * i / 5, py = ry.at(y, kHeight - kBottom, kTop);
    const double x = rx.low + (rx.high - rx.low) * i / 5, px = rx.at(x, kLeft, kWidth - kRight);
    svg +=
        fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>\n", kLeft, kWidth - kRight, py, py);
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.3g}</text>\n", kLeft - 8, py + 4, y);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.0f}</text>\n", px, kHeight - kBottom + 20, x);
  }
  return svg;
}

}  // namespace

double LogEntry::remaining_seconds() const {
  const double share = share_done();
  return share > 0 ? elapsed_seconds * (1 - share) / share : NAN;
}

nlohmann::json to_json(const LogEntry& entry) {
  return entry_json(entry);
}

RunLog::RunLog(std::filesystem::path dir, std::int64_t from_step) : dir_(std::move(dir)) {
  const auto path = dir_ / kLogFile;
  std::string kept;
  if (from_step > 0 && std::filesystem::exists(path)) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_discarded()) continue;  // a kill cut the line short
      LogEntry entry = read_entry(json, path, line);
      if (entry.step > from_step) continue;
      entries_.push_back(std::move(entry));
      kept += line + "\n";
    }
  }
  io::atomic_write_file(io::posix_storage(), path, kept);
}

void RunLog::append(LogEntry entry) {
  entry.time = unix_seconds();
  entries_.push_back(entry);
  const auto path = dir_ / kLogFile;
  std::ofstream out(path, std::ios::app);
  out << entry_json(entry).dump() << '\n' << std::flush;
  require(out.good(), "cannot write '{}': is the disk full?", path.string());
}

std::string RunLog::trainer_state(const TrainerState& s) const {
  ordered_json history = ordered_json::array();
  for (const LogEntry& e : entries_) {
    ordered_json item = {{"epoch", e.epoch}};
    set_if(item, "grad_norm", e.grad_norm);
    set_if(item, "learning_rate", e.learning_rate);
    set_if(item, "loss", e.loss);
    set_if(item, "eval_loss", e.eval_loss);
    for (const auto& [name, value] : e.metrics) item[name] = json_number(value);
    item["step"] = e.step;
    history.push_back(std::move(item));
  }
  const auto best = s.best.reported();
  const auto unless = [](bool unknown, const auto& value) { return unknown ? ordered_json() : ordered_json(value); };
  const ordered_json state = {{"best_global_step", unless(!best, best ? best->step : 0)},
                              {"best_metric", unless(!best, best ? best->metric : 0.0)},
                              {"best_model_checkpoint", unless(s.best.checkpoint.empty(), (dir_ / s.best.checkpoint).string())},
                              {"epoch", s.epoch},
                              {"global_step", s.step},
                              {"is_local_process_zero", true},
                              {"is_world_process_zero", true},
                              {"log_history", history},
                              {"max_steps", s.total_steps},
                              {"num_train_epochs", std::ceil(s.num_train_epochs)},
                              {"train_batch_size", s.micro_batch_size}};
  return state.dump(2) + "\n";
}

void RunLog::write_plots() const {
  std::vector<std::pair<double, double>> train, eval;
  for (const LogEntry& e : entries_) {
    if (e.loss && std::isfinite(*e.loss)) train.emplace_back(static_cast<double>(e.step), *e.loss);
    if (e.eval_loss && std::isfinite(*e.eval_loss)) eval.emplace_back(static_cast<double>(e.step), *e.eval_loss);
  }
  auto& storage = io::posix_storage();
  if (!train.empty()) io::atomic_write_file(storage, dir_ / "training_loss.svg", loss_plot_svg("training loss", train));
  if (!eval.empty()) io::atomic_write_file(storage, dir_ / "training_eval_loss.svg", loss_plot_svg("evaluation loss", eval));
}

std::string loss_plot_svg(const std::string& title, const Points& points) {
  const Range rx = range_of(points, true), ry = range_of(points, false);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"24\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n",
      kWidth, kHeight, kWidth / 2, title);
  svg += axes(rx, ry);
  const bool smooth = points.size() > 10;
  svg += polyline(points, rx, ry, "#1f77b4", smooth ? 0.4 : 1.0);
  if (smooth) svg += polyline(smoothed(points), rx, ry, "#1f77b4", 1.0);
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">step</text>\n</svg>\n", kWidth / 2, kHeight - 10);
  return svg;
}

}  // namespace qft::train
