#include "watching.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/log.h"
#include "qft/core/thread.h"
#include "qft/core/version.h"
#include "qft/device/device.h"
#include "qft/device/nvml.h"
#include "qft/io/storage.h"
#include "qft/job/batch_job.h"
#include "qft/train/run_log.h"
#include "qft/watch/page.h"

#include <algorithm>
#include <unistd.h>

namespace qft::train {
namespace {

using nlohmann::ordered_json;

/// Returns a histogram of item lengths in tokens, with bars of equal width.
ordered_json lengths_of(const engine::TrainingData& data) {
  constexpr std::int64_t kBars = 40;
  if (!data.pack) return {};
  const auto tokens = data.pack->item_tokens();
  const auto length = [&](std::size_t i) {
    return static_cast<std::int64_t>(tokens[data.items ? static_cast<std::size_t>((*data.items)[i]) : i]);
  };
  const std::size_t items = data.items ? data.items->size() : tokens.size();
  if (items == 0) return {};
  std::int64_t longest = 1, sum = 0;
  for (std::size_t i = 0; i < items; ++i) longest = std::max(longest, length(i)), sum += length(i);
  const std::int64_t width = (longest + kBars) / kBars;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(longest / width + 1), 0);
  for (std::size_t i = 0; i < items; ++i) ++counts[static_cast<std::size_t>(length(i) / width)];
  return {{"width", width},
          {"counts", counts},
          {"longest", longest},
          {"mean", static_cast<double>(sum) / static_cast<double>(items)},
          {"cutoff_len", data.pack->attributes().cutoff_len}};
}

/// The keys that the user gave.
std::vector<std::string> given_keys(const config::RunConfig& config) {
  std::vector<std::string> keys;
  for (const auto& [key, source] : config.given) keys.push_back(key);
  return keys;
}

ordered_json memory_of(const plan::RunPlan& run) {
  const plan::MemoryPlan& p = run.footprint.memory;
  return {{"total", run.predicted()},
          {"available", run.process + run.available},
          {"parts",
           {{"process", run.process},
            {"weights", p.weights},
            {"gathered", p.gathered},
            {"gradients", p.gradients},
            {"optimizer", p.optimizer},
            {"activations", p.activations},
            {"buffers", p.buffers},
            {"kernels", run.footprint.kernels},
            {"checkpoint copies", run.on_cpu ? run.footprint.staged : 0}}}};
}

}  // namespace

ordered_json describe_run(const Banner& b, const config::RunConfig& config, engine::Instance& instance,
                          const engine::TrainingData& data) {
  const auto& spec = instance.spec();
  ordered_json sources = ordered_json::array();
  if (data.pack)
    for (const auto& source : data.pack->attributes().sources) sources.push_back(source.name);
  return {{"name", config.training.run_name},
          {"version", version()},
          {"job", job::this_job().job},
          {"ranks", b.hosts.size()},
          {"hosts", b.hosts},
          {"device", device::describe(instance.transformer().device())},
          {"strategy", parallel::describe(instance.plan().sharding)},
          {"model",
           {{"path", b.model},
            {"architecture", spec.config.architecture},
            {"layers", spec.config.num_layers},
            {"hidden_size", spec.config.hidden_size},
            {"parameters", spec.num_params(false)},
            {"trainable", spec.num_params(true)}}},
          {"data", {{"sources", sources}, {"samples", b.samples}, {"lengths", lengths_of(data)}}},
          {"total_steps", b.total_steps},
          {"global_batch_size", b.global_batch_size},
          {"micro_batch_size", b.micro_batch_size},
          {"memory", memory_of(instance.plan())},
          {"given", given_keys(config)},
          {"settings", track::without_secrets(config::to_json(config))}};
}

std::vector<track::GpuUse> gpus_here() {
  std::vector<track::GpuUse> list;
  for (const device::GpuState& gpu : device::gpu_report().gpus)
    list.push_back({gpu.use_percent, gpu.watts, gpu.temperature, static_cast<double>(gpu.used)});
  return list;
}

std::map<std::string, std::vector<double>> gather_use(track::MachineMonitor* here, comm::Communicator& comm) {
  const std::string mine = here == nullptr ? "{}" : here->take().dump();
  std::map<std::string, std::vector<double>> all;
  for (const std::string& text : comm::all_gather_strings(comm, mine)) {
    const auto node = nlohmann::json::parse(text).get<std::map<std::string, std::vector<double>>>();
    for (const auto& [key, values] : node) all[key].insert(all[key].end(), values.begin(), values.end());
  }
  return all;
}

Watching::Watching(const config::RunConfig& config, const std::string& id, std::int64_t from_step, ordered_json description)
    : dir_(config.training.output_dir), reader_(dir_) {
  description_ = {{"run", id}, {"status", ""}, {"started", unix_seconds()}, {"pid", ::getpid()}, {"from_step", from_step}};
  description_.update(description);
  write("running");
  const auto trackers = track::chosen_trackers(config.training.report_to);
  tracking_ = std::make_unique<track::Tracking>(trackers, track::run_of(dir_, description_), dir_ / kLogFile);
}

Watching::~Watching() {
  if (tracking_) end(track::Status::failed);
  if (reporter_.joinable()) reporter_.join();
}

void Watching::report() {
  if (reporter_.joinable()) reporter_.join();
  reporter_ = start_thread([this] {
    try {
      const std::string page = watch::html_page(reader_.refresh(), unix_seconds());
      io::atomic_write_file(io::posix_storage(), dir_ / watch::kReportFile, page);
    } catch (const std::exception& e) {
      log::warn("cannot write '{}': {}", (dir_ / watch::kReportFile).string(), e.what());
    }
  });
}

void Watching::end(track::Status status) {
  write(track::to_string(status));
  report();
  reporter_.join();  // MLflow stores the report
  tracking_->end(status, status == track::Status::failed ? track::kFinishSecondsAfterFailure : track::kFinishSeconds);
  tracking_.reset();
}

void Watching::note_error(std::string_view why) {
  description_["error"] = why.substr(0, why.find('\n'));  // cuts LibTorch's backtrace
}

/// Only warns: a full disk must not end the run because of this file.
void Watching::write(std::string_view status) {
  description_["status"] = status;
  if (status != "running") description_["ended"] = unix_seconds();
  try {
    const auto text = description_.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    io::atomic_write_file(io::posix_storage(), dir_ / track::kRunFile, text);
  } catch (const std::exception& e) {
    log::warn("cannot write '{}': {}", (dir_ / track::kRunFile).string(), e.what());
  }
}

}  // namespace qft::train
