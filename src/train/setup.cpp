#include "qft/train/setup.h"

#include "qft/checkpoint/branch.h"
#include "qft/comm/exchange.h"
#include "qft/config/start.h"
#include "qft/core/error.h"
#include "qft/core/units.h"
#include "qft/encode/template_comparison.h"
#include "qft/engine/reference.h"
#include "qft/engine/run_plan.h"
#include "qft/job/batch_job.h"
#include "qft/job/stop_signal.h"
#include "qft/pack/inputs.h"
#include "qft/plan/run_plan.h"
#include "qft/track/tracker.h"
#include "qft/train/snapshot.h"

#include <algorithm>
#include <cmath>

#include "resume.h"

namespace qft::train {
namespace {

/// Steps completed before this start.
std::int64_t steps_done(const Setup& setup) {
  return setup.saved ? setup.saved->state().at("progression").at("step").get<std::int64_t>() : 0;
}

/// "output_dir is new: training starts at step 0"
std::string start_words(const config::RunConfig& config, const Setup& setup) {
  const std::string& dir = config.training.output_dir;
  if (!setup.saved) return fmt::format("training starts at step 0 in '{}'", dir);
  const std::int64_t step = steps_done(setup);
  if (setup.loader && step >= setup.loader->total_steps())
    return fmt::format("nothing is left to train: '{}' has all {} steps", setup.saved->dir().string(), step);
  return fmt::format("training resumes from '{}', step {}", setup.saved->dir().string(), step);
}

std::string data_words(const Setup& setup) {
  if (!setup.loader) return "datasets, template and tokenizer fit; the number of steps is known after packing";
  const auto& data = setup.data;
  const auto samples = data.items ? static_cast<std::int64_t>(data.items->size()) : data.pack->num_items();
  return fmt::format("data fits: {} samples, global batch {}, {} steps", samples, setup.loader->global_batch_size(),
                     setup.loader->total_steps());
}

std::string model_words(const config::RunConfig& config, const plan::RunPlan& run) {
  const auto& spec = *run.spec;
  return fmt::format("model '{}' is complete: {}, {} parameters, {} trainable", config.model.model_name_or_path,
                     spec.config.architecture, format_count(static_cast<double>(spec.num_params(false))),
                     format_count(static_cast<double>(spec.num_params(true))));
}

std::string memory_words(const plan::RunPlan& run) {
  const auto bytes = [](std::int64_t n) { return format_bytes(static_cast<double>(n)); };
  return fmt::format("{} fits: {} predicted, {} available to a rank ({})", parallel::describe(run.sharding),
                     bytes(run.predicted()), bytes(run.available), plan::describe(run.footprint.memory));
}

/// Another program's checkpoint-<step> is never replaced: better to fail now than when that step is saved.
void require_room(const config::RunConfig& config, const Setup& setup, comm::Communicator& comm) {
  const std::int64_t done = steps_done(setup);
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    for (const auto& entry : checkpoint::rank_checkpoints(config.training.output_dir)) {
      const bool others = entry.origin != checkpoint::Origin::ours && entry.origin != checkpoint::Origin::damaged && !entry.aside;
      if (others && entry.step > done && entry.step <= setup.loader->total_steps() &&
          saves_at(config.training, *setup.loader, entry.step))
        fail_config(
            "'{}' is not a checkpoint of qft and is not replaced, but this run would save its step {} there: move it away, or "
            "choose another output_dir",
            entry.dir.string(), entry.step);
    }
  });
}

/// Estimates the number of saves while the number of samples is unknown.
std::int64_t saves_before_packing(const config::TrainingArgs& t) {
  const std::int64_t steps = std::max<std::int64_t>(t.max_steps, 0);
  std::int64_t saves = 1;
  if (t.save_strategy == "epoch" && steps == 0) saves = static_cast<std::int64_t>(std::ceil(t.num_train_epochs));
  if (t.save_strategy == "steps" && steps > 0)
    saves = steps / std::max<std::int64_t>(config::TrainingArgs::interval(t.save_steps, steps), 1);
  return std::max<std::int64_t>(saves, 1);
}

/// The largest number of checkpoints that the run adds to its output_dir. If its steps are unknown: the ones that it keeps, or
/// one.
std::int64_t checkpoints_of(const config::RunConfig& config, const Setup& setup) {
  const auto& t = config.training;
  if (t.save_strategy == "no") return 0;
  std::int64_t saves = setup.loader ? 0 : saves_before_packing(t);
  for (std::int64_t step = steps_done(setup) + 1; setup.loader && step <= setup.loader->total_steps(); ++step)
    saves += saves_at(t, *setup.loader, step);
  const std::int64_t kept = t.save_total_limit.value_or(0);
  return kept > 0 ? std::min(saves, kept + 1) : saves;  // the oldest is removed after the new one is complete
}

/// For do_eval and do_predict without do_train.
RunPreview check_evaluation(const config::RunConfig& config, comm::Communicator& comm, c10::Device device) {
  const auto source = engine::ModelSource::read(config, engine::Use::inference, comm);
  const plan::RunPlan run = engine::resolve_run(config, source, comm, device);
  comm::agreed(comm, [&] {
    if (config.training.do_eval) engine::reference_of(config, run.spec->adapter, engine::Use::inference);
  });
  engine::open_eval_data(config, run.spec->config, comm, engine::MissingPacks::leave);
  return {.lines = {model_words(config, run), memory_words(run), "nothing is trained: only do_eval or do_predict was requested"}};
}

}  // namespace

Setup set_up(config::RunConfig& config, comm::Communicator& comm, engine::MissingPacks missing,
             const std::function<void()>& accepted) {
  Setup s;
  comm::agreed(comm, [&] {
    if (comm.rank() == 0) track::chosen_trackers(config.training.report_to);  // refuses trackers that cannot run here
  });
  const auto point = find_resume_point(config, comm);
  comm::agreed(comm, [&] {
    if (accepted) accepted();
  });
  if (point) s.same_settings = adopt(config, s.saved.emplace(comm, *point), comm);
  // Before packing: refuses models that cannot train.
  comm::agreed(comm, [&] {
    s.source.emplace(engine::ModelSource::read(config, engine::Use::training));
    engine::plan_of(config, *s.source);
  });
  s.data = engine::open_training_data(config, s.source->config(), comm, missing,
                                      [&](const pack::PackAttributes& wanted, comm::Communicator&) {
                                        if (s.saved) pack::require_same_pack(s.saved->state().at("data"), wanted);
                                      });
  if (!s.data.pack || (s.data.eval && !s.data.eval->pack)) return s;
  s.loader = s.data.loader(config, comm);
  config.check_steps(s.loader->total_steps());
  if (s.saved) s.loader->resume(s.saved->state().at("data"));
  s.batches = s.loader->bounds();
  require_room(config, s, comm);
  if (s.data.eval) s.batches.evaluation_tokens = s.data.eval->loader(config, comm)->max_micro_batch_tokens();
  return s;
}

bool saves_at(const config::TrainingArgs& t, const loader::Loader& loader, std::int64_t step) {
  const bool last = step == loader.total_steps(), epoch_ends = step % loader.steps_per_epoch() == 0;
  const std::int64_t interval = config::TrainingArgs::interval(t.save_steps, loader.total_steps());
  return (t.save_strategy == "steps" && due(step, interval)) || (t.save_strategy == "epoch" && epoch_ends) ||
         (last && t.save_strategy != "no");
}

RunPreview check_run(config::RunConfig config, comm::Communicator& comm, c10::Device device) {
  job::job_end(comm);
  if (!config::trains(config)) return check_evaluation(config, comm, device);
  const Setup setup = set_up(config, comm, engine::MissingPacks::leave);
  const plan::RunPlan run = engine::resolve_run(config, *setup.source, comm, device, setup.batches);
  if (setup.saved) require_same_tensors(*setup.saved, *run.rule, run.hyper, *run.spec);
  std::vector<std::string> lines = {model_words(config, run), data_words(setup), memory_words(run), start_words(config, setup)};
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    for (std::string& line : encode::compare_with_own(config)) lines.push_back(std::move(line));
  });
  return {std::move(lines), plan::checkpoint_bytes(run), checkpoints_of(config, setup),
          plan::model_file_bytes(*run.spec, run.precision)};
}

}  // namespace qft::train
