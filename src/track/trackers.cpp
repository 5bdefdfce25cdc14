#include "trackers.h"

#include "qft/core/error.h"
#include "qft/net/url.h"

#include <algorithm>

namespace qft::track {
namespace {

using Maker = std::unique_ptr<Tracker> (*)(const Run&, std::shared_ptr<Deadline>);

/// A name that report_to may hold. A row without `make` is refused; `advice` is the remedy.
struct Row {
  std::string_view name;
  Maker make = nullptr;
  void (*require)() = nullptr;  ///< throws ConfigError if the tracker cannot run here
  std::string_view advice = {};
};

constexpr std::string_view kFromEvents = "write report_to: tensorboard; it can import the event files of TensorBoard";

constexpr Row kTrackers[] = {
    {"tensorboard", make_tensorboard},
    {"mlflow", make_mlflow, require_mlflow_server},
    {"wandb", nullptr, nullptr,
     "write report_to: tensorboard, then `wandb sync --sync-tensorboard OUTPUT_DIR/runs` shows the run"},
    {"swanlab", nullptr, nullptr, "write report_to: tensorboard, then `swanlab convert -t tensorboard` shows the run"},
    {"neptune", nullptr, nullptr, kFromEvents},
    {"comet_ml", nullptr, nullptr, "write report_to: tensorboard, then `comet upload` takes the event files"},
    {"clearml", nullptr, nullptr, kFromEvents},
    {"dvclive", nullptr, nullptr, "write report_to: tensorboard, or read trainer_log.jsonl"},
    {"dagshub", nullptr, nullptr, "write report_to: mlflow, with DagsHub's address as MLFLOW_TRACKING_URI"},
    {"azure_ml", nullptr, nullptr, "write report_to: mlflow, with the workspace's https address as MLFLOW_TRACKING_URI"},
    {"trackio", nullptr, nullptr, kFromEvents},
    {"flyte", nullptr, nullptr, kFromEvents},
    {"codecarbon", nullptr, nullptr, "the log has the power that GPUs take (system/gpu_power)"},
};

const Row* find(std::string_view name) {
  const auto* row = std::ranges::find(kTrackers, name, &Row::name);
  return row == std::end(kTrackers) ? nullptr : row;
}

/// Returns the trackers that "all" stands for: each that can run here.
std::vector<std::string> all_here() {
  std::vector<std::string> names;
  for (const Row& row : kTrackers) {
    if (row.make == nullptr) continue;
    try {
      if (row.require != nullptr) row.require();
      names.emplace_back(row.name);
    } catch (const ConfigError&) {  // cannot run here
    }
  }
  return names;
}

bool ends_with_any(std::string_view key, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return key.ends_with(end); });
}

}  // namespace

std::string_view to_string(Status status) {
  constexpr std::string_view kWords[] = {"finished", "stopped", "failed"};
  return kWords[static_cast<std::size_t>(status)];
}

Run run_of(const std::filesystem::path& output_dir, const nlohmann::json& d) {
  Run run{output_dir, d.at("run"), d.at("name"), d.at("from_step"), {}, d.at("settings"), {}};
  if (const auto found = run.settings.find("logging_dir"); found != run.settings.end() && found->is_string())
    run.logging_dir = found->get<std::string>();
  for (const char* key : {"version", "device", "strategy", "job"})
    if (const std::string value = d.at(key); !value.empty()) run.tags[fmt::format("qft.{}", key)] = value;
  run.tags["qft.ranks"] = d.at("ranks").dump();
  run.tags["qft.model"] = d.at("model").at("path");
  return run;
}

bool Deadline::passed() const {
  return steady_seconds() > at_;
}

std::vector<std::string> chosen_trackers(std::span<const std::string> report_to) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : report_to) {
    if (name == "none" || name.empty()) continue;
    if (name == "all") {
      std::ranges::for_each(all_here(), add);
      continue;
    }
    const Row* row = find(name);
    if (row == nullptr) fail_config("report_to: '{}' is unknown: use tensorboard, mlflow, all or none", name);
    if (row->make == nullptr) fail_config("report_to: {} is not implemented: {}", name, row->advice);
    if (row->require != nullptr) row->require();
    add(name);
  }
  return names;
}

std::unique_ptr<Tracker> make_tracker(const std::string& name, const Run& run, std::shared_ptr<Deadline> deadline) {
  const Row* row = find(name);
  QFT_ASSERT(row != nullptr && row->make != nullptr, "'{}' is not a tracker", name);
  return row->make(run, std::move(deadline));
}

nlohmann::json without_secrets(const nlohmann::json& settings) {
  if (settings.is_string()) {
    const auto& text = settings.get_ref<const std::string&>();
    return text.find("://") == text.npos ? settings : nlohmann::json(net::without_secrets(text));
  }
  if (!settings.is_structured()) return settings;
  nlohmann::json kept = settings.is_array() ? nlohmann::json::array() : nlohmann::json::object();
  for (const auto& [key, value] : settings.items()) {
    if (settings.is_array())
      kept.push_back(without_secrets(value));
    else if (!ends_with_any(key, {"_token", "password", "secret", "api_key"}))
      kept[key] = without_secrets(value);
  }
  return kept;
}

}  // namespace qft::track
