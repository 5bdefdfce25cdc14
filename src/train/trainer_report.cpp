// What a training run reports: its banner, log lines and results.
#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/eval/evaluate.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"
#include "qft/io/storage.h"
#include "qft/model/adapter_config.h"
#include "qft/plan/resolve.h"
#include "qft/train/trainer.h"

#include <algorithm>
#include <cmath>

#include "banner.h"
#include "watching.h"

namespace qft::train {

void Trainer::begin_watching() {
  const auto& t = config_.training;
  auto hosts = comm::all_gather_strings(comm_, session_.hostname());
  if (session_.local_rank() == 0) machine_ = std::make_unique<track::MachineMonitor>(gpus_here);
  if (!is_root()) return;
  Banner banner;
  banner.model = config_.model.model_name_or_path;
  banner.total_steps = loader_->total_steps();
  banner.steps_per_epoch = loader_->steps_per_epoch();
  banner.global_batch_size = loader_->global_batch_size();
  banner.micro_batch_size = t.per_device_train_batch_size;
  banner.samples = data_.items ? static_cast<std::int64_t>(data_.items->size()) : data_.pack->num_items();
  if (data_.eval)
    banner.held_out = data_.eval->items ? static_cast<std::int64_t>(data_.eval->items->size()) : data_.eval->pack->num_items();
  if (const auto* rows = loader_->schedule().rows()) banner.rows = rows->rows();
  banner.hosts = std::move(hosts);
  banner.template_name = data_.pack->attributes().template_name;
  banner.shared = loader_->shared_token_fraction();
  banner.first_sample = data_.first_sample;
  print(banner, config_, *instance_, session_);
  if (progression_.step >= loader_->total_steps()) return;  // a finished run keeps its description
  watching_ = std::make_unique<Watching>(config_, run_.id, progression_.step, describe_run(banner, config_, *instance_, data_));
}

void Trainer::take_phases() {
  const auto times = instance_->executor().take_times();
  PhaseSeconds& phases = since_log_.phases;
  phases.forward += times.forward;
  phases.backward += times.backward;
  phases.gather += times.gather;
  phases.reduce += times.reduce;
  phases.exchange += times.exchange;
  progression_.exchange_seconds += times.exchange;
}

void Trainer::write_log(const loader::StepBatch& batch, const parallel::StepResult& result) {
  const auto memory = comm::all_gather_value(comm_, device::memory_use(instance_->transformer().device()).peak);
  take_phases();
  auto system = gather_use(machine_.get(), comm_);
  const double at = steady_seconds();
  if (is_root()) {
    LogEntry e;
    e.step = progression_.step;
    e.total_steps = loader_->total_steps();
    e.epoch = batch.epoch;
    e.loss = result.loss;
    e.metrics = result.metrics;
    e.grad_norm = result.grad_norm;
    e.learning_rate = last_learning_rate_;
    e.elapsed_seconds = progression_.elapsed_seconds + at - start_;
    e.tokens_per_second = static_cast<double>(since_log_.tokens) / std::max(1e-9, at - since_log_.started);
    e.total_tokens = progression_.total_tokens;
    e.label_tokens = progression_.label_tokens;
    e.memory = memory;
    e.system = std::move(system);
    e.skipped_updates = progression_.guard.skipped;
    e.phases = since_log_.phases;
    e.phases.save = saver_->take_stall();
    log_->append(e);
    bar_->clear();
    std::string judged;  // for pairs: whether the chosen answers win; the loss does not show that
    for (const std::string_view name : config_.stage().shown_metrics)
      if (const auto found = e.metrics.find(std::string(name)); found != e.metrics.end())
        judged += fmt::format("  {} {:.4f}", name, found->second);
    log::info("step {}/{}  loss {:.4f}{}  grad_norm {:.4f}  lr {:.3e}  epoch {:.2f}  {:.0f} tok/s  {} done, {} left", e.step,
              e.total_steps, result.loss, judged, result.grad_norm, last_learning_rate_, e.epoch, e.tokens_per_second,
              format_duration(e.elapsed_seconds), format_duration(e.remaining_seconds()));
  }
  since_log_ = {};
  since_log_.started = at;
}

void Trainer::warn_skipped(const std::string& objection, double scale) const {
  std::string words = fmt::format("step {}: {}", progression_.step + 1, objection);
  if (scaler_.dynamic()) words += fmt::format(" at loss scale {:.0f}, the next one is {:.0f}", scale, scaler_.scale());
  log::warn("{}: the update is skipped ({} so far)", words, progression_.guard.skipped);
}

void Trainer::report_memory() {
  const auto peaks = comm::all_gather_value(comm_, device::memory_use(instance_->transformer().device()).peak);
  if (!is_root()) return;
  const plan::RunPlan& run = instance_->plan();
  const std::int64_t peak = *std::max_element(peaks.begin(), peaks.end());
  bar_->clear();
  log::info("memory of a rank, peak: {}, predicted {}", format_bytes(static_cast<double>(peak)),
            format_bytes(static_cast<double>(run.predicted())));
  memory_ = {{"memory_peak", static_cast<double>(peak)}, {"memory_predicted", static_cast<double>(run.predicted())}};
  const parallel::StoreMemory held = instance_->weights().memory();
  const plan::MemoryPlan& plan = run.footprint.memory;
  std::string parts;
  const auto part = [&](const char* name, std::int64_t predicted, std::int64_t here) {
    if (predicted == 0 && here == 0) return;
    parts += fmt::format("{}{} {} / {}", parts.empty() ? "" : ", ", name, format_bytes(static_cast<double>(here)),
                         format_bytes(static_cast<double>(predicted)));
    memory_[fmt::format("memory_{}", name)] = static_cast<double>(here);
    memory_[fmt::format("memory_{}_predicted", name)] = static_cast<double>(predicted);
  };
  part("weights", plan.weights, held.weights);
  part("gathered", plan.gathered, held.gathered_peak);
  part("gradients", plan.gradients, held.grads_peak);
  if (!instance_->layout().offload().optimizer) part("optimizer", plan.optimizer, instance_->optimizer()->bytes());
  const parallel::ExecutorMemory own = instance_->executor().memory();
  part("activations", plan.activations, own.activations);
  part("buffers", plan.buffers, own.buffers);
  part("reference", plan.reference, references_.training ? references_.training->bytes() : 0);
  log::debug("on rank 0, held / predicted: {}", parts);
}

bool Trainer::was_finished() {
  std::int32_t there = 0;
  if (is_root() && same_settings_) {
    const auto& t = config_.training;
    const std::filesystem::path dir = t.output_dir;
    const auto has = [&](const char* name) { return std::filesystem::exists(dir / name); };
    const bool weights = has(model::kAdapterWeightsFile) || has(io::kSingleFile) || has(io::kIndexFile);
    const bool results = weights && has("train_results.json") && (!data_.eval || !t.do_eval || has("eval_results.json"));
    nlohmann::json state;
    try {
      if (results && has("trainer_state.json")) state = io::read_json(dir / "trainer_state.json");
    } catch (const Error&) {
    }  // no result: the results are written again
    there = state.is_object() && state.value("global_step", nlohmann::json()) == progression_.step ? 1 : 0;
  }
  if (comm::broadcast_value(comm_, there) == 0) return false;
  if (is_root())
    log::info(
        "nothing left to train: '{}' holds the results of all {} steps, which are kept (overwrite_output_dir: true "
        "trains from the start)",
        config_.training.output_dir, progression_.step);
  return true;
}

void Trainer::write_results(double epoch) {
  const auto& t = config_.training;
  const double seconds = progression_.elapsed_seconds + steady_seconds() - start_;
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, progression_.step));
  const double loss = progression_.mean_loss();
  std::map<std::string, double> results = memory_;
  results["epoch"] = epoch;
  results["train_loss"] = loss;
  if (progression_.guard.skipped > 0) results["skipped_updates"] = static_cast<double>(progression_.guard.skipped);
  results["train_runtime"] = seconds;
  results["train_steps_per_second"] = steps / seconds;
  results["train_samples_per_second"] = steps * static_cast<double>(loader_->global_batch_size()) / seconds;
  results["train_tokens_per_second"] = static_cast<double>(progression_.total_tokens) / seconds;
  const parallel::Sharding& sharding = instance_->layout().sharding();
  const bool exchanges = sharding.tensor_ranks * sharding.context_ranks > 1;
  results["data_parallel"] = sharding.shard_ranks * sharding.replicas;
  results["tensor_parallel"] = sharding.tensor_ranks;
  results["context_parallel"] = sharding.context_ranks;
  if (exchanges) results["train_exchange_runtime"] = progression_.exchange_seconds;
  eval::write_results(t.output_dir, "train", results);
  if (!eval_.empty()) {
    auto values = eval_;
    values["epoch"] = epoch;
    eval::write_results(t.output_dir, "eval", values);
  }
  log_->write_plots();
  const auto state = log_->trainer_state(
      {progression_.step, loader_->total_steps(), epoch, t.num_train_epochs, t.per_device_train_batch_size, progression_.best});
  io::atomic_write_file(io::posix_storage(), std::filesystem::path(t.output_dir) / "trainer_state.json", state);
  if (const auto* graphs = instance_->executor().graphs()) {
    const auto& n = graphs->counts();
    log::info(
        "cuda_graphs: {} layer calls replayed, {} run kernel by kernel; {} graphs captured, of these discarded: {} because "
        "memory moved, {} for newer shapes",
        n.replayed, n.uncaptured, n.captured, n.moved, n.evicted);
  }
  std::string layout;
  if (session_.size() > 1) layout = "; " + plan::layout_words(config_, session_.size());
  if (exchanges) layout += fmt::format(", {:.0f}% of the time in exchanges", 100.0 * progression_.exchange_seconds / seconds);
  log::info("done: {} in {}, mean loss {:.4f}{}; results in '{}'", count_noun(progression_.step, "step"),
            format_duration(seconds), unsigned_nan(loss), layout, t.output_dir);
}

int Trainer::verdict() const {
  const GuardState& guard = progression_.guard;
  const std::int64_t steps = progression_.step;
  if (guard.skipped == 0) return kExitOk;
  // a dynamic loss scale skips updates until it fits
  const bool none_kept = guard.skipped >= steps, searches = scaler_.dynamic();
  const bool diverged = 2 * guard.skipped > steps || (guard.skipped_in_row > 0 && !searches);
  if (is_root() && none_kept && searches)
    log::error(
        "all {} updates were skipped while the loss scale came down to {:.0f}, so the weights in '{}' are unchanged; "
        "lower fp16_initial_scale_power, or train in bf16",
        steps, scaler_.scale(), config_.training.output_dir);
  else if (is_root() && none_kept)
    log::error(
        "diverged: all {} updates were skipped, so the weights in '{}' are unchanged; lower learning_rate, or check the "
        "data with qft-pack check",
        steps, config_.training.output_dir);
  else if (is_root() && diverged)
    log::warn("diverged: {} of {} updates were skipped, the last {} in a row; lower learning_rate, or take an earlier checkpoint",
              guard.skipped, steps, guard.skipped_in_row);
  else if (is_root())
    log::warn("{} of {} updates were skipped", guard.skipped, steps);
  return none_kept ? kExitFailed : kExitOk;
}

}  // namespace qft::train
