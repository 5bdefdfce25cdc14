#include "qft/config/training_args.h"

#include "qft/config/optimizers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace qft::config {
namespace {

// Keys for the training loop: tasks, duration, batches.
void visit_loop(TrainingArgs& a, const FieldVisitor& field) {
  field(Field("output_dir", "folder for checkpoints, logs and results").path().per_run(Field::PerRun::named), &a.output_dir);
  field(Field("overwrite_output_dir", "start from scratch even if output_dir has checkpoints; qft generate: replace --output")
            .per_run(Field::PerRun::start),
        &a.overwrite_output_dir);
  field(Field("do_train", "train").shown_default("true, unless do_eval or do_predict is given"), &a.do_train);
  field(Field("do_eval", "evaluate at the end; without do_train: evaluate only").shown_default("true unless eval_strategy is no"),
        &a.do_eval);
  field(Field("do_predict",
              "generate answers to the evaluation set at the end (needs predict_with_generate); without do_train: predict only"),
        &a.do_predict);
  field(Field("resume_from_checkpoint", "path of a checkpoint; true: the newest one, which must exist; false: start from scratch")
            .path()
            .shown_default("the newest one in output_dir, if any")
            .per_run(Field::PerRun::start),
        &a.resume_from_checkpoint);
  field(Field("per_device_train_batch_size", "samples in a micro-batch of one rank").at_least(1), &a.per_device_train_batch_size);
  field(Field("max_tokens_per_micro_batch", "largest number of tokens in a micro-batch; larger ones are split; 0: no limit")
            .at_least(0),
        &a.max_tokens_per_micro_batch);
  field(Field("per_device_eval_batch_size",
              "samples in an evaluation batch of one rank; for predict_with_generate and qft generate --input: sequences decoded "
              "at the same time")
            .at_least(1),
        &a.per_device_eval_batch_size);
  field(Field("gradient_accumulation_steps", "micro-batches per rank in one optimizer step").at_least(1),
        &a.gradient_accumulation_steps);
  field(Field("global_batch_size", "samples in one optimizer step, over all ranks")
            .at_least(1)
            .shown_default("per_device_train_batch_size * gradient_accumulation_steps * data ranks"),
        &a.global_batch_size);
  field(Field("breadth_first_micro_batches", "micro-batches that pass a block for each gather of its weights")
            .at_least(1)
            .zero_word("auto"),
        &a.breadth_first_micro_batches);
  field(
      Field(
          "dataloader_drop_last",
          "drop the last samples of an epoch if they do not fill a micro-batch on every data rank (other samples in each epoch)"),
      &a.dataloader_drop_last);
  field(Field("num_train_epochs", "passes over the training set").above(0).at_most(kMaxSteps), &a.num_train_epochs);
  field(Field("max_steps", "number of optimizer steps; 1 or more overrides num_train_epochs").in(-1, kMaxSteps), &a.max_steps);
  field(Field("max_hours", "stop with a checkpoint (exit code 75) after this number of hours; 0: no limit").at_least(0),
        &a.max_hours);
  field(Field("ddp_timeout",
              "end the job after this number of seconds without a sign of life from one rank or without progress on all ranks; "
              "at most 14400")
            .at_least(1),
        &a.ddp_timeout);
  field(Field("straggler_action",
              "action if a rank is three times as slow as the others: warn, or save a checkpoint and end the run")
            .one_of({"warn", "stop"}),
        &a.straggler_action);
  field(Field("loss_spike_factor", "skip a step's update if its loss exceeds the usual loss by this factor; 0: off").at_least(0),
        &a.loss_spike_factor);
  field(Field("max_skipped_updates",
              "end the run after this number of consecutive skipped updates (NaN, Inf, loss spikes); 0: no limit")
            .at_least(0),
        &a.max_skipped_updates);
  field(Field("async_save", "write checkpoints from a copy in host memory while training continues"), &a.async_save);
}

void visit_optimizer(TrainingArgs& a, const FieldVisitor& field) {
  Field optim = Field("optim", "optimizer; docs/methods.md describes each, and lists the values with the same meaning");
  for (const OptimizerNames& row : kOptimizers) optim.choices.insert(optim.choices.end(), row.optim.begin(), row.optim.end());
  field(optim, &a.optim);
  field(Field("optim_args", "more optimizer arguments, in transformers' form: momentum=0.9,nesterov=true"), &a.optim_args);
  field(Field("galore_rank", "GaLore: rank of the projection").at_least(1), &a.galore_rank);
  field(Field("galore_update_interval", "GaLore: steps between updates of the projection").at_least(1),
        &a.galore_update_interval);
  field(Field("galore_scale", "GaLore: factor for the updates of projected matrices").above(0), &a.galore_scale);
  field(Field("galore_proj_type",
              "GaLore: side of a matrix to project: the longer one (std), the shorter one (reverse_std), or always left or right")
            .one_of({"std", "reverse_std", "left", "right"}),
        &a.galore_proj_type);
  field(Field("apollo_rank", "APOLLO: rank of the projection").at_least(1), &a.apollo_rank);
  field(Field("apollo_update_interval", "APOLLO: steps between updates of the projection").at_least(1),
        &a.apollo_update_interval);
  field(Field("apollo_scale", "APOLLO: updates of projected matrices are multiplied by sqrt(apollo_scale)").above(0),
        &a.apollo_scale);
  field(Field("apollo_proj", "APOLLO: projection onto random vectors (random) or the leading singular vectors (svd)")
            .one_of({"random", "svd"}),
        &a.apollo_proj);
  field(Field("apollo_proj_type", "APOLLO: side of a matrix to project: the longer one (std), or always right or left")
            .one_of({"std", "right", "left"}),
        &a.apollo_proj_type);
  field(
      Field("apollo_scale_type", "APOLLO: one scaling factor per channel, or per matrix (tensor)").one_of({"channel", "tensor"}),
      &a.apollo_scale_type);
  field(Field("apollo_scale_front", "APOLLO: apply apollo_scale before limiting the growth of the update's norm"),
        &a.apollo_scale_front);
  field(Field("learning_rate", "peak learning rate").at_least(0), &a.learning_rate);
  field(Field("scale_lr_by_world_size", "multiply learning_rate by the number of data ranks"), &a.scale_lr_by_world_size);
  field(Field("weight_decay", "weight decay, decoupled from the gradient except for sgd; not applied to norms and biases")
            .at_least(0),
        &a.weight_decay);
  field(Field("adam_beta1", "decay of the first moment, or the optimizer's own beta1 (docs/methods.md)").in_half_open(0, 1),
        &a.adam_beta1);
  field(Field("adam_beta2", "decay of the second moment, or the optimizer's own beta2 (docs/methods.md)").in_half_open(0, 1),
        &a.adam_beta2);
  field(Field("adam_epsilon", "term that the optimizer adds to the denominator of its update").above(0), &a.adam_epsilon);
  field(Field("max_grad_norm", "clip gradients to this norm; null or 0: no clipping").at_least(0).zero_word("null"),
        &a.max_grad_norm);
  field(Field("neftune_noise_alpha",
              "NEFTune: add noise to the embeddings in training, at most this value / sqrt(tokens * width); 0: no noise")
            .at_least(0)
            .zero_word("null"),
        &a.neftune_noise_alpha);
  field(Field("lr_scheduler_type", "learning-rate schedule")
            .one_of({"linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
                     "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay"})
            .advise("schedules that follow a metric are not implemented: cosine is the usual choice"),
        &a.lr_scheduler_type);
  field(Field("lr_scheduler_kwargs", "more arguments for the schedule, with transformers' names: {num_cycles: 2}"),
        &a.lr_scheduler_kwargs);
  field(Field("warmup_ratio", "warm-up steps as a fraction of all steps").in(0, 1), &a.warmup_ratio);
  field(Field("warmup_steps", "warm-up steps; above 0 it overrides warmup_ratio").at_least(0).steps(), &a.warmup_steps);
  field(Field("warmup_type", "shape of the warm-up: linear, or log (DeepSpeed's, which rises fast at first)")
            .one_of({"linear", "log"}),
        &a.warmup_type);
}

void visit_numerics(TrainingArgs& a, const FieldVisitor& field) {
  field(Field("bf16", "bf16 weights and compute, with fp32 masters of trained weights"), &a.bf16);
  field(Field("fp16", "fp16 weights and compute with loss scaling, with fp32 masters of trained weights"), &a.fp16);
  field(Field("fp16_loss_scale", "fp16: constant loss scale").at_least(0).zero_word("dynamic"), &a.fp16_loss_scale);
  field(Field("fp16_initial_scale_power", "fp16: the dynamic loss scale starts at 2 to this power").in(0, 126),
        &a.fp16_initial_scale_power);
  field(Field("fp16_loss_scale_window", "fp16: steps without overflow until the loss scale doubles").at_least(1),
        &a.fp16_loss_scale_window);
  field(Field("fp16_hysteresis", "fp16: overflows until the loss scale is halved").at_least(1), &a.fp16_hysteresis);
  field(Field("fp16_consecutive_hysteresis", "fp16: a step without overflow resets the count of fp16_hysteresis"),
        &a.fp16_consecutive_hysteresis);
  field(Field("fp16_min_loss_scale", "fp16: smallest dynamic loss scale").above(0), &a.fp16_min_loss_scale);
  field(Field("pure_bf16", "bf16 everywhere, without fp32 masters: half the memory, less exact"), &a.pure_bf16);
  field(Field("tf32", "use TF32 for fp32 matrix products on the GPU"), &a.tf32);
  field(Field("compute_dtype", "type of weights and compute; auto: from bf16, fp16 and pure_bf16, else float32")
            .one_of({"auto", "float64", "float32", "bfloat16", "float16"}),
        &a.compute_dtype);
  field(Field("gradient_checkpointing", "recompute activations in backward").shown_default("not disable_gradient_checkpointing"),
        &a.gradient_checkpointing);
  field(Field("use_cpu", "compute on the CPU even if there is a GPU"), &a.use_cpu);
  field(Field("deterministic", "bit-identical results in repeated runs and, with ddp, on any number of ranks; slower"),
        &a.deterministic);
  field(Field("debug_sync", "for developers of qft: fail if a step after the first makes the host wait for its GPU"),
        &a.debug_sync);
  field(Field("cuda_graphs",
              "run layers as CUDA graphs and pad micro-batches to a few shapes: for small models, in which kernel launches "
              "dominate"),
        &a.cuda_graphs);
  field(Field("seed", "seed for initial weights, dropout and sampling").at_least(0), &a.seed);
  field(Field("data_seed", "seed for the sample order").at_least(0).shown_default("seed"), &a.data_seed);
}

void visit_events(TrainingArgs& a, const FieldVisitor& field) {
  field(Field("logging_steps", "steps between log lines; below 1: a fraction of all steps")
            .above(0)
            .steps()
            .zero_word("auto")
            .shown_default("a twentieth of the run, 100 at most"),
        &a.logging_steps);
  field(Field("logging_first_step", "log the first step too"), &a.logging_first_step);
  field(Field("save_strategy", "when to write checkpoints")
            .one_of({"no", "steps", "epoch"})
            .advise("to keep the best checkpoint, use load_best_model_at_end"),
        &a.save_strategy);
  field(Field("save_steps", "steps between checkpoints; below 1: a fraction of all steps").above(0).steps(), &a.save_steps);
  field(Field("save_total_limit", "number of checkpoints to keep; older ones are removed").at_least(1).shown_default("all"),
        &a.save_total_limit);
  field(Field("save_only_model", "save without optimizer state: smaller, but a run cannot resume from it"), &a.save_only_model);
  field(Field("eval_strategy", "when to evaluate").one_of({"no", "steps", "epoch"}), &a.eval_strategy);
  field(Field("eval_steps", "steps between evaluations; below 1: a fraction of all steps")
            .at_least(0)
            .steps()
            .shown_default("logging_steps if given, else 500"),
        &a.eval_steps);
  field(Field("load_best_model_at_end", "end with the weights of the best checkpoint"), &a.load_best_model_at_end);
  field(Field("metric_for_best_model",
              "evaluation metric that decides the best checkpoint: loss, accuracy, <dataset>_loss, rouge-l ...")
            .shown_default("loss"),
        &a.metric_for_best_model);
  field(Field("greater_is_better", "true if a higher metric_for_best_model is better")
            .shown_default("false for losses and perplexity, else true"),
        &a.greater_is_better);
}

void visit_watching(TrainingArgs& a, const FieldVisitor& field) {
  field(Field("report_to",
              "destinations of metrics in addition to trainer_log.jsonl: tensorboard, mlflow, both, or all that can run here")
            .shown_default("none"),
        &a.report_to);
  field(Field("run_name", "the run's name in TensorBoard, MLflow and the report").per_run(Field::PerRun::named), &a.run_name);
  field(Field("logging_dir", "folder for TensorBoard's files")
            .path()
            .shown_default("a new folder in output_dir/runs")
            .per_run(Field::PerRun::named),
        &a.logging_dir);
  field(Field("log_dir", "folder for log files, one per rank, with all messages of the rank from log_level on")
            .path()
            .per_run(Field::PerRun::named),
        &a.log_dir);
  field(Field("trace", "file for a trace of single steps (actions, collectives, loader, saves), which ui.perfetto.dev opens")
            .path()
            .per_run(Field::PerRun::named),
        &a.trace);
  field(Field("trace_steps", "the steps of the trace: 5, or 5-8").per_run(Field::PerRun::start), &a.trace_steps);
}

void visit_launch(TrainingArgs& a, const FieldVisitor& field) {
  field(
      Field("log_level", "lowest severity to log").one_of({"trace", "debug", "info", "warning", "error", "critical", "passive"}),
      &a.log_level);
  field(Field("deepspeed", "DeepSpeed configuration: a JSON file, zero0 ... zero3, zero2_offload or zero3_offload"),
        &a.deepspeed);
  field(Field("fsdp", "FSDP options (full_shard, shard_grad_op, hybrid_shard, no_shard, offload) or an accelerate YAML"),
        &a.fsdp);
  field(Field("fsdp_config", "more FSDP options: a mapping, or a JSON file"), &a.fsdp_config);
  field(Field("accelerate_config", "accelerate configuration: a YAML file").path(), &a.accelerate_config);
}

}  // namespace

void TrainingArgs::visit(const FieldVisitor& field) {
  visit_loop(*this, field);
  visit_optimizer(*this, field);
  visit_numerics(*this, field);
  visit_events(*this, field);
  visit_watching(*this, field);
  visit_launch(*this, field);
}

std::int64_t TrainingArgs::log_interval(std::int64_t total_steps) const {
  constexpr std::int64_t kLines = 20, kMaxInterval = 100;
  return logging_steps > 0.0 ? interval(logging_steps, total_steps)
                             : std::clamp<std::int64_t>(total_steps / kLines, 1, kMaxInterval);
}

std::optional<std::pair<std::int64_t, std::int64_t>> TrainingArgs::traced_steps() const {
  const char *at = trace_steps.data(), *const end = at + trace_steps.size();
  const auto number = [&](std::int64_t& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  std::int64_t first = 0, last = 0;
  bool good = number(first);
  last = first;
  if (good && at != end && *at == '-') {
    ++at;
    good = number(last);
  }
  if (!good || at != end || first < 1 || last < first) return std::nullopt;
  return std::pair(first, last);
}

std::int64_t TrainingArgs::interval(double steps, std::int64_t total_steps) {
  const double count = steps < 1.0 ? std::ceil(steps * static_cast<double>(total_steps)) : steps;
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(count));
}

std::int64_t TrainingArgs::warmup(std::int64_t total_steps) const {
  if (warmup_steps >= 1.0) return static_cast<std::int64_t>(warmup_steps);
  const double ratio = warmup_steps > 0.0 ? warmup_steps : warmup_ratio;
  return static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(total_steps)));
}

}  // namespace qft::config
