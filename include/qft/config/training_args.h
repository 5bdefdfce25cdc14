// Keys for the training loop and the optimizer. Each member is the YAML key of the same name; visit() has its help text.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

struct TrainingArgs {
  std::string output_dir;
  bool overwrite_output_dir = false;
  bool do_train = false;
  bool do_eval = false;  // RunConfig::resolve() sets it if eval_strategy is not "no"
  bool do_predict = false;
  std::string resume_from_checkpoint;  // "", "true", "false" or a path

  std::int64_t per_device_train_batch_size = 8;
  std::int64_t max_tokens_per_micro_batch = 0;  // 0: no limit
  std::int64_t per_device_eval_batch_size = 8;
  std::int64_t gradient_accumulation_steps = 1;
  std::optional<std::int64_t> global_batch_size;
  std::int64_t breadth_first_micro_batches = 0;  // 0 means "auto"
  bool dataloader_drop_last = false;
  double num_train_epochs = 3.0;
  std::int64_t max_steps = -1;
  double max_hours = 0.0;
  std::int64_t ddp_timeout = 1800;
  std::string straggler_action = "warn";
  double loss_spike_factor = 0.0;
  std::int64_t max_skipped_updates = 25;
  bool async_save = true;

  std::string optim = "adamw_torch";
  double learning_rate = 5e-5;
  bool scale_lr_by_world_size = false;
  double weight_decay = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  std::string optim_args;
  std::int64_t galore_rank = 16;
  std::int64_t galore_update_interval = 200;
  double galore_scale = 2.0;
  std::string galore_proj_type = "std";
  std::int64_t apollo_rank = 16;
  std::int64_t apollo_update_interval = 200;
  double apollo_scale = 32.0;
  std::string apollo_proj = "random";
  std::string apollo_proj_type = "std";
  std::string apollo_scale_type = "channel";
  bool apollo_scale_front = false;
  double max_grad_norm = 1.0;  // 0: no clipping
  std::string lr_scheduler_type = "linear";
  nlohmann::json lr_scheduler_kwargs;  // a mapping
  std::string warmup_type = "linear";
  double warmup_ratio = 0.0;
  double warmup_steps = 0.0;  // below 1: a fraction of all steps; otherwise a number of steps

  bool bf16 = false;
  bool fp16 = false;
  double fp16_loss_scale = 0.0;  // 0 means "dynamic"
  std::int64_t fp16_initial_scale_power = 16;
  std::int64_t fp16_loss_scale_window = 1000;
  std::int64_t fp16_hysteresis = 2;
  bool fp16_consecutive_hysteresis = false;
  double fp16_min_loss_scale = 1.0;
  bool pure_bf16 = false;
  std::optional<bool> tf32;
  std::string compute_dtype = "auto";
  std::optional<bool> gradient_checkpointing;
  bool use_cpu = false;
  bool deterministic = false;
  bool debug_sync = false;
  bool cuda_graphs = false;
  std::int64_t seed = 42;
  std::optional<std::int64_t> data_seed;  // RunConfig::resolve() sets it to `seed` if not given

  double logging_steps = 0.0;  // 0: depends on the run's length
  bool logging_first_step = false;
  std::string save_strategy = "steps";
  double save_steps = 500;
  std::optional<std::int64_t> save_total_limit;
  bool save_only_model = false;
  std::string eval_strategy = "no";
  double eval_steps = 0.0;  // 0 until RunConfig::resolve() sets logging_steps or 500
  bool load_best_model_at_end = false;
  std::string metric_for_best_model;
  double neftune_noise_alpha = 0.0;
  std::optional<bool> greater_is_better;

  std::vector<std::string> report_to;
  std::string run_name;
  std::string logging_dir;
  std::string log_dir;
  std::string trace;
  std::string trace_steps = "2-4";

  std::string log_level = "info";
  nlohmann::json deepspeed;    // null, a name or path, or the DeepSpeed object itself
  nlohmann::json fsdp;         // null, words such as "full_shard offload", or the path of an accelerate YAML
  nlohmann::json fsdp_config;  // null, a path, or the object itself
  std::string accelerate_config;

  void visit(const FieldVisitor& field);
  bool operator==(const TrainingArgs&) const = default;

  /// Returns the steps between log lines in a run of `total_steps`: logging_steps if given; else a twentieth of the run, at most
  /// 100.
  std::int64_t log_interval(std::int64_t total_steps) const;
  /// Returns the first and the last step of trace_steps, from 1; nullopt unless it is "N" or "N-M" with 1 <= N <= M.
  std::optional<std::pair<std::int64_t, std::int64_t>> traced_steps() const;
  /// Converts logging_steps, save_steps or eval_steps to a number of steps: a value below 1 is a fraction of `total_steps`,
  /// rounded up as in transformers. Returns at least 1.
  static std::int64_t interval(double steps, std::int64_t total_steps);
  /// Returns the warm-up steps in a run of `total_steps`: warmup_steps if given, else warmup_ratio * total_steps, rounded up.
  std::int64_t warmup(std::int64_t total_steps) const;
};

}  // namespace qft::config
