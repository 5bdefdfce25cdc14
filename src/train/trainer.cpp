#include "qft/train/trainer.h"

#include "qft/checkpoint/checkpoint.h"
#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/core/trace.h"
#include "qft/core/units.h"
#include "qft/device/memory.h"
#include "qft/device/stream_trace.h"
#include "qft/engine/objectives.h"
#include "qft/engine/step_inputs.h"
#include "qft/engine/stored_reference.h"
#include "qft/eval/evaluate.h"
#include "qft/job/batch_job.h"
#include "qft/parallel/routing_objective.h"
#include "qft/train/save_model.h"
#include "qft/train/setup.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "progress_file.h"
#include "resume.h"
#include "step_trace.h"
#include "step_work.h"
#include "watching.h"

namespace qft::train {
namespace {

/// The coefficient of torch.nn.utils.clip_grad_norm_.
double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0.0) return 1.0;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

constexpr const char* kEvalLoss = "eval_loss";

/// Formats an evaluation for the log.
std::string words_of(const eval::PerplexityResult& result, const std::map<std::string, double>& values) {
  std::string text = result.scores();
  if (const auto bleu = values.find("eval_bleu-4"); bleu != values.end())
    text += fmt::format("  BLEU-4 {:.2f}  ROUGE-L {:.2f}", bleu->second, values.at("eval_rouge-l"));
  return text;
}

/// Returns the position of this rank's micro-batches in the global batch, if the run needs it.
parallel::MicroRange micro_range(const config::RunConfig& config, const loader::StepBatch& batch) {
  if (!config.training.deterministic) return {};
  return {batch.first_micro_batch, static_cast<std::int64_t>(batch.micro_batches.size()), batch.global_micro_batches};
}

double peak_learning_rate(const config::RunConfig& config, int data_ranks) {
  const config::TrainingArgs& t = config.training;
  if (!t.scale_lr_by_world_size) return t.learning_rate;
  const double peak = t.learning_rate * data_ranks;
  log::info("peak learning rate {}: learning_rate {} times {} (scale_lr_by_world_size)", peak, t.learning_rate,
            count_noun(data_ranks, config.parallel.data_rank_noun()));
  return peak;
}

optim::LossScaler scaler_of(const config::RunConfig& config) {
  const auto& t = config.training;
  if (config.compute_dtype() != DType::f16) return {};
  return optim::LossScaler({t.fp16_loss_scale, t.fp16_initial_scale_power, t.fp16_loss_scale_window, t.fp16_hysteresis,
                            t.fp16_consecutive_hysteresis, t.fp16_min_loss_scale});
}

}  // namespace

Trainer::Trainer(config::RunConfig config, comm::Session& session, c10::Device device, const std::function<void()>& accepted)
    : config_(std::move(config)),
      session_(session),
      comm_(session.world()),
      output_(config_.training.output_dir, comm_),
      limit_(config_.training.max_hours, job::job_end(comm_), unix_seconds()) {
  const activity::Phase phase("load");
  Setup setup = set_up(config_, comm_, engine::MissingPacks::make, [&] {
    if (!is_root()) return;
    progress_file_ = std::make_unique<ProgressFile>(config_.training.output_dir);
    if (accepted) accepted();
  });
  same_settings_ = setup.same_settings;
  const auto from = setup.saved ? std::optional(setup.saved->dir()) : std::nullopt;
  run_ = begin_run(config_, from, comm_);
  if (is_root()) output_.lock()->set_run(run_.id);
  data_ = std::move(setup.data);
  loader_ = std::move(setup.loader);
  comm::agreed(comm_, [&] {
    if (!config_.training.metric_for_best_model.empty() && data_.eval) metric_ = eval::metric_key(config_, *data_.eval);
  });
  // If we stop before the first save, the old checkpoint stays the resume point.
  if (from) last_checkpoint_ = *from;
  const auto leave = [&] {
    if (!from) return;
    require_output();
    note_stop(config_.training.output_dir, *from, comm_);
  };
  job::stop_before_training(comm_, leave);
  const auto& t = config_.training;
  optim::Schedule schedule;
  schedule.peak = peak_learning_rate(config_, engine::data_place(config_, comm_).size);
  schedule.warmup_steps = t.warmup(loader_->total_steps());
  schedule.total_steps = loader_->total_steps();
  schedule.log_warmup = t.warmup_type == "log";
  schedule_ = optim::make_schedule(t.lr_scheduler_type, t.lr_scheduler_kwargs, schedule);
  references_ = stored_references(*setup.source, device, leave);
  instance_ = engine::Instance::load(engine::resolve_run(config_, *setup.source, comm_, device, setup.batches), *setup.source,
                                     comm_, device, from.value_or(""));
  if (!references_.training)
    references_.training = references_.evaluation =
        engine::load_reference_beside(config_, *setup.source, *instance_, comm_, device);
  scaler_ = scaler_of(config_);
  if (const auto& saved = setup.saved) {
    const auto& state = saved->state();
    progression_ = progression_from_json(state.at("progression"));
    forget_other_best();
    check_best(progression_.best, t.output_dir, comm_);
    load_snapshot(*saved, *instance_);
    scaler_.from_json(state.value("loss_scaler", nlohmann::json()));
    epoch_ = state.value("epoch", 0.0);
    log::info("resumed from '{}' at step {}", saved->dir().string(), progression_.step);
  } else {
    forget_other_best();
  }
  require_output();
  if (!setup.saved) remove_earlier_run(t.output_dir, comm_);
  if (is_root()) log_ = std::make_unique<RunLog>(t.output_dir, progression_.step);
  saver_ = std::make_unique<Saver>(config_, *instance_, comm_);
  if (!t.trace.empty()) trace_ = std::make_unique<StepTrace>(t, loader_->total_steps(), session_, device);
  last_saved_ = progression_.step;
  job::stop_before_training(comm_, leave);
}

/// Computes the references for precompute_ref_log_probs. A request to stop, or the time limit, keeps those computed so far.
engine::References Trainer::stored_references(const engine::ModelSource& source, c10::Device device,
                                              const std::function<void()>& leave) {
  const activity::Phase phase("reference");
  const auto asked = [&] { return job::stop_requested() != 0 || limit_.reached(unix_seconds()); };
  try {
    return engine::stored_references(config_, source, data_, comm_, device, asked);
  } catch (const job::Stopped&) {
    leave();
    throw;
  }
}

std::int64_t Trainer::interval(double steps) const {
  return config::TrainingArgs::interval(steps, loader_->total_steps());
}

Trainer::~Trainer() = default;

int Trainer::run() {
  begin_watching();
  int code = kExitFailed;
  try {
    code = train();
  } catch (const std::exception& e) {
    if (watching_) watching_->note_error(e.what());
    throw;
  }
  progress_file_.reset();
  if (watching_) {
    const activity::Phase phase("results");
    watching_->end(code == kExitOk        ? track::Status::finished
                   : code == kExitRequeue ? track::Status::stopped
                                          : track::Status::failed);
  }
  return code;
}

int Trainer::train() {
  const activity::Phase phase("train");
  start_ = since_log_.started = steady_seconds();
  bar_ = std::make_unique<Progress>("train", loader_->total_steps(), is_root());
  instance_->executor().take_times();
  double loss = 0.0;  // of the last completed step
  if ((progression_.step == loader_->total_steps() || stops_early()) && was_finished()) {
    require_output();
    if (is_root()) forget_stop(config_.training.output_dir);
    if (config_.training.do_predict) {
      restore_best();
      predict();
    }
    return verdict();
  }
  if (progression_.step == loader_->total_steps() && !same_settings_ && is_root())
    log::warn(
        "nothing is left to train: all {} steps were done before the settings changed; the results are written again "
        "(overwrite_output_dir: true trains from the start, a larger max_steps or num_train_epochs trains further)",
        progression_.step);
  job::training_has_begun();
  if (progress_file_) progress_file_->begin(progression_.step, loader_->total_steps());
  while (progression_.step < loader_->total_steps() && !stops_early()) {
    if (trace_) trace_->before_step(progression_.step + 1);
    const double started = steady_seconds(), waited = activity::waited_seconds();
    const loader::StepBatch batch = next_batch();
    since_log_.phases.data += steady_seconds() - started;
    const parallel::StepResult result = step(batch);
    if (result.abandoned) {
      loader_->seek(progression_.step);
      return stop(epoch_, loss);
    }
    epoch_ = batch.epoch;
    loss = result.loss;
    step_seconds_ = result.seconds;
    const double seconds = steady_seconds() - started;
    limit_.observe_step(seconds);
    activity::step_done(progression_.step + 1, seconds - (activity::waited_seconds() - waited),
                        step_work(instance_->spec(), batch));
    stopping_ = result.stop_requests > 0 && progression_.step + 1 < loader_->total_steps();
    after_step(batch, result);
    note(saver_->poll());
    if (trace_) trace_->after_step(progression_.step);
    if (stopping_) return stop(epoch_, loss);
  }
  finish(epoch_);
  return verdict();
}

loader::StepBatch Trainer::next_batch() {
  const trace::Scope scope(trace::kMainThread, "wait for the batch");
  return loader_->next();
}

parallel::StepResult Trainer::step(const loader::StepBatch& batch) {
  next_sources_ = progression_.sources;
  engine::StepInputs step(config_, *instance_, references_.training.get(), &next_sources_);
  parallel::BatchTotals totals{static_cast<double>(batch.global_label_tokens), static_cast<double>(batch.global_samples),
                               static_cast<double>(batch.global_tokens)};
  totals.weighted = batch.weighted;
  step.fill_totals(totals, batch);
  const auto inputs = step.inputs({batch.micro_batches, batch.max_micro_batches, batch.first_micro_batch});
  const auto list =
      instance_->training_list(static_cast<int>(inputs.size()), static_cast<int>(batch.max_micro_batches), step_seconds_);
  const auto objective = engine::make_objective(config_, instance_->spec().config, totals);
  const auto result = instance_->executor().train(
      list, inputs, *objective, static_cast<std::uint64_t>(progression_.step),
      [this](bool step_done) { return stop_requested(step_done); }, scaler_.scale(), micro_range(config_, batch));
  if (result.abandoned) return result;
  const double started = steady_seconds();
  // As in transformers and DeepSpeed, a skipped update does not advance the schedule.
  last_learning_rate_ = schedule_.at(progression_.step - progression_.guard.skipped);
  // A dynamic loss scale may have far to fall and has its own limit.
  const GuardPolicy policy{config_.training.loss_spike_factor, scaler_.dynamic() ? 0 : config_.training.max_skipped_updates};
  const std::string objection =
      judge_step(progression_.guard, policy, progression_.step + 1, result.loss, result.grad_norm, result.finite);
  const double scale = scaler_.scale();
  scaler_.update(result.finite);
  if (objection.empty()) {
    const trace::Scope scope(trace::kMainThread, "optimizer");
    const device::StreamSpan on_device(device::Stream::current(instance_->transformer().device()), "stream: compute",
                                       [] { return std::string("optimizer"); });
    instance_->update(last_learning_rate_, clip_scale(result.grad_norm, config_.training.max_grad_norm) / scale);
  } else if (is_root()) {
    warn_skipped(objection, scale);
  }
  since_log_.phases.optimizer += steady_seconds() - started;
  return result;
}

void Trainer::after_step(const loader::StepBatch& batch, const parallel::StepResult& result) {
  const auto& t = config_.training;
  ++progression_.step;
  if (progress_file_) progress_file_->step(progression_.step);
  progression_.total_tokens += batch.global_tokens;
  progression_.label_tokens += batch.global_label_tokens;
  if (result.finite) progression_.loss_sum += result.loss, ++progression_.finite_steps;
  progression_.sources = next_sources_;
  since_log_.tokens += batch.global_tokens;
  if (const std::string collapse = parallel::describe_collapse(result.metrics, instance_->spec().config);
      !collapse.empty() && is_root() && !std::exchange(warned_of_collapse_, true))
    log::warn("step {}: {}", progression_.step, collapse);
  const bool last = progression_.step == loader_->total_steps();
  bar_->update(progression_.step,
               fmt::format("loss {:.4f}  {:.0f} tok/s", result.loss,
                           static_cast<double>(since_log_.tokens) / std::max(1e-9, steady_seconds() - since_log_.started)));
  if (due(progression_.step, t.log_interval(loader_->total_steps())) || last || (progression_.step == 1 && t.logging_first_step))
    write_log(batch, result);
  if (t.eval_strategy == "steps" && due(progression_.step, interval(t.eval_steps))) evaluate(batch.epoch);
  const bool epoch_ends = progression_.step % loader_->steps_per_epoch() == 0;
  if (t.eval_strategy == "epoch" && (epoch_ends || last)) evaluate(batch.epoch);
  if (saves_at(t, *loader_, progression_.step)) save(batch.epoch, result.loss);
}

void Trainer::evaluate(double epoch) {
  if (!data_.eval) return;
  const activity::Phase phase("eval");
  const trace::Scope scope(trace::kMainThread, "evaluation");
  const auto& t = config_.training;
  const double started = steady_seconds();
  take_phases();
  const auto result = eval::evaluate(config_, *instance_, references_.evaluation.get(), *data_.eval, comm_);
  last_evaluated_ = progression_.step;
  eval_ = eval::eval_values(result, config_);
  if (config_.eval.predict_with_generate) eval_.merge(eval::answer_values(*instance_, *data_.eval, config_, comm_));
  if (is_root()) {
    LogEntry e;
    e.step = progression_.step;
    e.total_steps = loader_->total_steps();
    e.epoch = epoch;
    e.eval_loss = result.loss;
    for (const auto& [name, value] : eval_)
      if (eval::is_quality_metric(name) && name != kEvalLoss) e.metrics[name] = value;
    e.elapsed_seconds = progression_.elapsed_seconds + steady_seconds() - start_;
    e.total_tokens = progression_.total_tokens;
    e.label_tokens = progression_.label_tokens;
    log_->append(e);
    bar_->clear();
    log::info("step {}/{}  {}  ({} samples, {:.1f} s)", progression_.step, loader_->total_steps(), words_of(result, eval_),
              result.items, steady_seconds() - started);
  }
  instance_->executor().take_times();  // of the evaluation, which belongs to no step
  since_log_.started += steady_seconds() - started;
  if (metric_.empty()) return;
  // A metric over zero samples is NaN and never becomes the best.
  const auto metric = eval_.find(metric_);
  progression_.best.observe(metric == eval_.end() ? std::nan("") : metric->second, progression_.step, *t.greater_is_better);
  if (stops_early())
    log::info("{} evaluations in a row had no better {} than {:.4f} at step {}: training ends here",
              progression_.best.evaluations_since, metric_,
              progression_.best.evaluation.value_or(BestModel::Measured{std::nan(""), 0}).metric,
              progression_.best.evaluation.value_or(BestModel::Measured{}).step);
}

void Trainer::save(double epoch, double loss) {
  if (last_saved_ == progression_.step && (last_has_state_ || !stopping_)) return;
  const double started = steady_seconds();
  take_phases();
  progression_.best.saved(checkpoint::directory_name(progression_.step), progression_.step);
  SnapshotInfo info;
  info.progression = progression_;
  info.progression.elapsed_seconds += started - start_;
  info.total_steps = loader_->total_steps();
  info.epoch = epoch;
  info.loss = loss;
  info.data_position = loader_->position();
  info.loss_scaler = scaler_.to_json();
  info.global_batch_size = loader_->global_batch_size();
  info.stopped = stopping_;
  info.run = run_;
  info.lock = output_.lock();
  note(saver_->start(info, log_.get()));
  last_saved_ = progression_.step;
  last_has_state_ = !config_.training.save_only_model || stopping_;
}

void Trainer::note(const std::optional<Saved>& saved) {
  if (!saved) return;
  last_checkpoint_ = saved->dir;
  limit_.observe_save(saved->seconds);
  if (!is_root()) return;
  if (watching_) watching_->report();
  bar_->clear();
  log::info("saved '{}' in {:.2f} s, of which training waited {:.2f} s", saved->dir.string(), saved->seconds,
            saved->stall_seconds);
}

/// The time limit never cuts off a process' first step, so a job that is resubmitted makes progress each time.
bool Trainer::stop_requested(bool step_done) const {
  const bool limits = step_done || std::isfinite(step_seconds_);
  return job::stop_requested() != 0 || (limits && limit_.reached(unix_seconds())) || !activity::end_reason().empty();
}

/// Ends the run with a checkpoint of the last completed step, which has the given epoch and loss.
int Trainer::stop(double epoch, double loss) {
  if (trace_) trace_->finish();
  if (progression_.step == 0) throw job::Stopped(job::kNothingTrained);
  stopping_ = true;
  save(epoch, loss);
  note(saver_->finish());
  require_output();
  note_stop(config_.training.output_dir, last_checkpoint_, comm_);
  if (const std::string reason = comm::broadcast_string(comm_, activity::end_reason()); !reason.empty())
    fail("{}: the run ends at step {} of {}; exclude that host and submit the job again to resume from '{}'", reason,
         progression_.step, loader_->total_steps(), config_.training.output_dir);
  if (is_root()) {
    log_->write_plots();
    log::warn("stopped {} at step {} of {}: submit the job again to resume from '{}'",
              limit_.reached(unix_seconds()) ? "before the time limit" : "on request", progression_.step, loader_->total_steps(),
              config_.training.output_dir);
  }
  return kExitRequeue;
}

/// Evaluations by another metric are not comparable: the best is searched anew.
void Trainer::forget_other_best() {
  BestModel& best = progression_.best;
  if (metric_.empty() || best.metric == metric_) return;
  if (best.evaluation && is_root())
    log::warn("the best evaluation so far was by {}; now only {} counts, from here on", best.metric, metric_);
  best = BestModel();
  best.metric = metric_;
}

/// Sets eval_ to the scores of the best checkpoint, read from the log.
void Trainer::restore_scores(const BestModel& best) {
  std::erase_if(eval_, [](const auto& value) { return eval::is_quality_metric(value.first) || value.first == "perplexity"; });
  eval_[best.metric] = best.at_checkpoint.metric;
  if (is_root())
    for (const LogEntry& e : log_->entries()) {
      if (e.step != best.at_checkpoint.step || !e.eval_loss) continue;
      for (const auto& [name, value] : e.metrics) eval_[name] = value;
      eval_[kEvalLoss] = *e.eval_loss;
    }
  const bool plain = engine::objective_of(config_).loss_is_nll;
  if (const auto nll = eval_.find(plain ? kEvalLoss : "eval_token/nll"); nll != eval_.end())
    eval_["perplexity"] = std::exp(nll->second);
}

void Trainer::restore_best() {
  const BestModel& best = progression_.best;
  if (!config_.training.load_best_model_at_end) return;
  if (best.checkpoint.empty() && is_root())
    log::warn("no checkpoint was evaluated at its own step: the result has the last weights, not the best ones");
  if (best.checkpoint.empty()) return;
  const auto dir = std::filesystem::path(config_.training.output_dir) / best.checkpoint;
  if (best.at_checkpoint.step != progression_.step) {
    load_snapshot(checkpoint::SharedCheckpoint(comm_, dir), *instance_);
    if (!eval_.empty()) restore_scores(best);
  }
  log::info("the best checkpoint is the result: '{}', {} {:.4f}", dir.string(), best.metric, best.at_checkpoint.metric);
}

/// Never removes from or writes to a directory that another run has taken over.
void Trainer::require_output() {
  comm::agreed(comm_, [&] {
    if (is_root()) output_.lock()->require_held();
  });
}

void Trainer::finish(double epoch) {
  if (trace_) trace_->finish();
  const activity::Phase phase("results");
  note(saver_->finish());
  report_memory();
  const auto& t = config_.training;
  if (data_.eval && t.do_eval && last_evaluated_ != progression_.step) evaluate(epoch);
  restore_best();
  require_output();
  comm::agreed(comm_, [&] {
    save_model(config_, *instance_, io::posix_storage(), t.output_dir, {comm_, 1});
    if (!is_root()) return;
    bar_->clear();
    write_results(epoch);
    forget_stop(t.output_dir);
  });
  if (t.do_predict) predict();
}

void Trainer::predict() {
  if (config_.stage().outputs_scores()) {
    const auto scores = eval::predict_scores(*instance_, *data_.eval, config_, comm_);
    log::info("{}", eval::describe(scores));
    return;
  }
  const auto result = eval::predict(*instance_, *data_.eval, config_, comm_);
  log::info("{}", eval::describe(result, config_.training.output_dir));
}

}  // namespace qft::train
