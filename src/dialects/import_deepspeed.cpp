#include "qft/config/expand_path.h"
#include "qft/config/nearest.h"
#include "qft/config/optimizers.h"
#include "qft/core/error.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "import_table.h"

namespace qft::dialects {
namespace {

constexpr std::initializer_list<Word> kZeroIsNone = {{"0", "null"}};  // DeepSpeed's default
constexpr std::initializer_list<Word> kAtMostOneIsNone = {{"0", "null"}, {"1", "null"}};

constexpr Renamed kDeepspeedMatches[] = {
    {{"train_micro_batch_size_per_gpu"}, "per_device_train_batch_size"},
    {{"gradient_accumulation_steps"}, "gradient_accumulation_steps"},
    {{"gradient_clipping"}, "max_grad_norm"},
    {{"bf16.enabled", "bfloat16.enabled"}, "bf16"},
    {{"fp16.enabled"}, "fp16"},
    {{"fp16.loss_scale"}, "fp16_loss_scale"},
    {{"fp16.initial_scale_power"}, "fp16_initial_scale_power"},
    {{"fp16.loss_scale_window"}, "fp16_loss_scale_window"},
    {{"fp16.hysteresis"}, "fp16_hysteresis"},
    {{"fp16.consecutive_hysteresis"}, "fp16_consecutive_hysteresis"},
    {{"fp16.min_loss_scale"}, "fp16_min_loss_scale"},
    {{"optimizer.params.lr"}, "learning_rate"},
    {{"optimizer.params.weight_decay"}, "weight_decay"},
    {{"optimizer.params.eps"}, "adam_epsilon"},
    {{"scheduler.params.warmup_max_lr"}, "learning_rate"},
    {{"scheduler.params.warmup_num_steps"}, "warmup_steps"},
    {{"tensor_parallel.autotp_size"}, "tensor_parallel", kZeroIsNone},
    {{"sequence_parallel_size"}, "context_parallel", kAtMostOneIsNone},
};

constexpr std::string_view kDeepspeedsOwn = "they concern DeepSpeed's own machinery";

constexpr NoEffect kDeepspeedNoEffect[] = {
    {{"zero_optimization.*"}, "qft has its own communication and memory management"},
    {{"fp16.*"}, "weights and compute are fp16; masters and gradients are fp32"},
    {{"bf16.*", "bfloat16.*"}, "masters are kept and gradients reduced in fp32"},
    {{"optimizer.params.torch_adam", "optimizer.legacy_fusion"}, "qft has its own optimizers"},
    {{"zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "gradient_predivide_factor"}, kDeepspeedsOwn},
    {{"tensor_parallel.tp_overlap_comm", "tensor_parallel.vocab_parallel_lm_head", "tensor_parallel.vocab_parallel_ce_backend",
      "tensor_parallel.keep_module_on_host", "tensor_parallel.preset_model", "tensor_parallel.tensor_parallel.tp_grain_size",
      "tensor_parallel.tp.tp_grain_size"},
     "qft cuts matrices at heads and columns by itself, with its own exchanges"},
    {{"tensor_parallel.dtype"}, "bf16, fp16 and compute_dtype decide the types"},
    {{"steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown", "comms_config.*", "comms_logger.*",
      "monitor_config.*", "tensorboard.*", "wandb.*", "csv_monitor.*", "comet.*", "flops_profiler.*"},
     "the log and trainer_log.jsonl contain this information"},
    {{"aio.*",
      "activation_checkpointing.*",
      "checkpoint.*",
      "compile.*",
      "data_types.*",
      "amp.*",
      "torch_autocast.*",
      "data_efficiency.*",
      "curriculum_learning.*",
      "elasticity.*",
      "progressive_layer_drop.*",
      "eigenvalue.*",
      "pipeline.*",
      "disable_allgather",
      "use_data_before_expert_parallelism",
      "hybrid_engine.*",
      "autotuning.*",
      "nebula.*",
      "seq_parallel_communication_data_type",
      "graph_harvesting"},
     kDeepspeedsOwn},
    {{"_comment"}, "it is a comment"},
};

constexpr Refused kDeepspeedRefused[] = {
    {{"optimizer.params.adam_w_mode"}, "qft's AdamW decouples weight decay", {"true"}},
    {{"optimizer.params.bias_correction"}, "qft's AdamW corrects the bias of the moments", {"true"}},
    {{"optimizer.params.amsgrad"}, "it is not implemented", {"false"}},
    {{"scheduler.params.warmup_min_lr"}, "the learning rate rises from 0", {"0", "0.0"}},
    {{"scheduler.*"}, "set lr_scheduler_type and warmup_steps in the run file, and remove the section"},
    {{"zero_optimization.cpu_offload", "zero_optimization.cpu_offload_params"},
     "use offload_optimizer and offload_param instead",
     {"false"}},
    {{"zero_optimization.zero_quantized_weights", "zero_optimization.zero_quantized_gradients",
      "zero_optimization.zero_quantized_nontrainable_weights"},
     "quantized communication changes the result and is not implemented",
     {"false"}},
    {{"zero_optimization.zero_hpz_partition_size", "zero_optimization.mics_shard_size"},
     "a second level of sharding is not implemented",
     {"-1", "0", "1"}},
    {{"communication_data_type", "data_types.grad_accum_dtype"}, "gradients are reduced and summed in fp32", {"fp32"}},
    {{"prescale_gradients", "sparse_gradients", "amp.enabled", "torch_autocast.enabled"}, "it is not implemented", {"false"}},
    {{"curriculum_learning.enabled", "data_efficiency.enabled", "elasticity.enabled", "progressive_layer_drop.enabled",
      "compression_training.*", "sparse_attention.*", "eigenvalue.enabled"},
     "it is not implemented: remove the section",
     {"false"}},
    {{"zero_optimization.offload_optimizer.ratio"}, "offloading a part is not implemented", {"1", "1.0"}},
    {{"tensor_parallel.partition_config.use_default_specs"}, "qft decides itself where matrices are cut", {"true"}},
    {{"tensor_parallel.tensor_parallel.mpu", "tensor_parallel.tensor_parallel.tp_group", "tensor_parallel.tp.mpu",
      "tensor_parallel.tp.tp_group"},
     "qft makes its own groups: remove the key"},
    {{"tensor_parallel.partition_config.*", "tensor_parallel.injection_policy_tuple"},
     "qft decides itself where matrices are cut: remove the key"},
    {{"tensor_parallel.replace_with_kernel_inject", "tensor_parallel.kernel_inject"},
     "qft has its own kernels: remove the key",
     {"false"}},
    {{"tensor_parallel.tensor_parallel.tp_size", "tensor_parallel.tp.tp_size", "tensor_parallel.tp_size"},
     "in training the degree is tensor_parallel.autotp_size alone: set that, and remove this key",
     {"1"}},
    {{"tensor_parallel.enabled"}, "remove the section to train without it", {"true"}},
    {{"fp16.fp16_master_weights_and_grads"}, "masters are kept and gradients reduced in fp32", {"false"}},
};

constexpr ImportTables kDeepspeedKeys = {
    .file = "DeepSpeed",
    .matches = kDeepspeedMatches,
    .collect = {"optimizer.type", "optimizer.params.betas", "zero_optimization.stage",
                "activation_checkpointing.cpu_checkpointing", "zero_optimization.offload_optimizer.device",
                "zero_optimization.offload_param.device", "scheduler.type", "scheduler.params.warmup_type",
                "scheduler.params.total_num_steps"},
    .batch = {"train_batch_size"},
    .no_effect = kDeepspeedNoEffect,
    .refused = kDeepspeedRefused};

// Built-in configurations, which have a name instead of a file.
struct NamedConfig {
  std::string_view name;
  int stage;
  bool offload_optimizer;
  bool offload_param;
};
constexpr NamedConfig kNamedConfigs[] = {{"zero0", 0, false, false},        {"zero1", 1, false, false},
                                         {"zero2", 2, false, false},        {"zero3", 3, false, false},
                                         {"zero2_offload", 2, true, false}, {"zero3_offload", 3, true, true}};

nlohmann::json document_of(const NamedConfig& named) {
  nlohmann::json zero = {{"stage", named.stage}};
  if (named.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}};
  if (named.offload_param) zero["offload_param"] = {{"device", "cpu"}};
  return {{"zero_optimization", zero}};
}

void match_optimizer(RunConfig& config, const Leaf& leaf) {
  for (const config::OptimizerNames& row : config::kOptimizers) {
    if (std::ranges::find(row.deepspeed, leaf.value.text) == row.deepspeed.end()) continue;
    const bool agrees = std::ranges::find(row.optim, config.training.optim) != row.optim.end();
    if (!agrees) match_key(config, "optim", plain(row.plain), leaf);
    return;
  }
  fail_config("{}: {} is refused: {}", leaf.where, describe(leaf.value), config::kOptimizersHere);
}

void match_betas(RunConfig& config, const Leaf& leaf) {
  if (leaf.value.kind != Value::Kind::list || leaf.value.items.size() != 2) {
    fail_config("{}: expected two numbers, got {}", leaf.where, describe(leaf.value));
  }
  match_key(config, "adam_beta1", leaf.value.items[0], leaf);
  match_key(config, "adam_beta2", leaf.value.items[1], leaf);
}

using Leaves = std::map<std::string, Leaf, std::less<>>;

// DeepSpeed's schedulers with transformers' names, mapped as in transformers.
struct Scheduler {
  std::string_view theirs, ours;
};
constexpr Scheduler kSchedulers[] = {{"WarmupLR", "constant_with_warmup"}, {"WarmupDecayLR", "linear"}};

// Requires the parameters for which DeepSpeed would use its own defaults. "auto" means the run file's value.
void require_params(const Leaf& type, const Value& document) {
  constexpr std::pair<std::string_view, std::string_view> kDefaults[] = {{"warmup_num_steps", "1000"},
                                                                         {"warmup_max_lr", "0.001"}};
  const auto below = [](const Value& value, std::string_view key) {
    for (const auto& [name, entry] : value.entries)
      if (name == key) return entry;
    return Value{};
  };
  const Value params = below(below(document, "scheduler"), "params");
  for (const auto& [key, otherwise] : kDefaults) {
    if (below(params, key).kind == Value::Kind::null) {
      fail_config("{}: params has no {}, and DeepSpeed's default is {}: write that value, or \"auto\" for the run file's value",
                  type.where, key, otherwise);
    }
  }
}

void match_scheduler(RunConfig& config, const Leaves& leaves, const Value& document) {
  const auto type = leaves.find("scheduler.type");
  if (type == leaves.end()) return;
  const auto* row = std::find_if(std::begin(kSchedulers), std::end(kSchedulers),
                                 [&](const Scheduler& s) { return s.theirs == type->second.value.text; });
  if (row == std::end(kSchedulers)) {
    fail_config(
        "{}: expected one of WarmupLR, WarmupDecayLR, got {}: set lr_scheduler_type in the run file, and remove the section",
        type->second.where, describe(type->second.value));
  }
  require_params(type->second, document);
  const auto warmup = leaves.find("scheduler.params.warmup_type");
  if (warmup == leaves.end()) {
    match_key(config, "warmup_type", plain("log"), type->second);  // DeepSpeed's default
  } else {
    match_key(config, "warmup_type", warmup->second.value, warmup->second);
  }
  match_key(config, "lr_scheduler_type", plain(row->ours), type->second);
  if (const auto total = leaves.find("scheduler.params.total_num_steps"); total != leaves.end())
    add_claim(config, WorldClaim::Kind::steps, total->second);
  if (config.training.max_steps > 0) config.check_steps(config.training.max_steps);
  config.notes.push_back(
      fmt::format("{}: warm-up follows transformers: DeepSpeed's warm-up begins one step later", type->second.where));
}

}  // namespace

void match_zero_stage(RunConfig& config, const Leaf& leaf) {
  const auto stage = as_int(leaf.value);
  if (!stage || *stage < 0 || *stage > 3) {
    fail_config("{}: expected a stage from 0 to 3, got {}", leaf.where, describe(leaf.value));
  }
  match_strategy(config, fmt::format("zero{}", *stage), leaf);
}

void import_deepspeed(RunConfig& config, const Value& document, std::string_view file, bool inlined) {
  const auto leaves = import_keys(config, document, file, inlined, kDeepspeedKeys);
  match_scheduler(config, leaves, document);
  for (const auto& [path, leaf] : leaves) {
    if (path == "optimizer.type") match_optimizer(config, leaf);
    if (path == "optimizer.params.betas") match_betas(config, leaf);
    if (path == "zero_optimization.stage") match_zero_stage(config, leaf);
    if (path == "zero_optimization.offload_optimizer.device") match_key(config, "offload_optimizer", leaf.value, leaf);
    if (path == "activation_checkpointing.cpu_checkpointing" && as_bool(leaf.value).value_or(false))
      match_key(config, "offload_activations", plain("cpu"), leaf);
    if (path == "zero_optimization.offload_param.device") match_key(config, "offload_param", leaf.value, leaf);
  }
}

const ImportTables& deepspeed_keys() {
  return kDeepspeedKeys;
}

void import_deepspeed_named(RunConfig& config, const nlohmann::json& name, std::string_view where) {
  if (!name.is_string()) fail_config("{}: expected a file or a name such as zero2, got {}", where, name.dump());
  const std::string text = name;
  std::vector<std::string_view> names;
  for (const NamedConfig& named : kNamedConfigs) {
    if (named.name == text) {
      return import_deepspeed(config, parse_json(document_of(named).dump(), where), where, true);
    }
    names.push_back(named.name);
  }
  const std::filesystem::path path = config::expand_path(text, where);
  if (!std::filesystem::exists(path)) {
    fail_config("{}: there is no file '{}', and the name is not one of {}{}", where, path.string(), fmt::join(names, ", "),
                config::suggestion(text, names, "paths are relative to the working directory"));
  }
  import_deepspeed(config, parse_file(path), path.string(), false);
}

}  // namespace qft::dialects
