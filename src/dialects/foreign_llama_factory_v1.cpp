#include "llama_factory_v1.h"

namespace qft::dialects {
namespace {

constexpr std::string_view kHub = "qft does not upload: use the hub's own tool";

// The sections, and the keys outside of them.
constexpr Renamed kTopRenamed[] = {
    {{"dist_timeout"}, "ddp_timeout"},
};

constexpr Converted kTopConverted[] = {
    {{"model_class"}, {{{"llm", "null"}, {}}, {{"cls"}, {{"stage", "rm"}}}}, "qft trains language models and reward models"},
    {{"batching_strategy"},
     {{{"normal", "padding_free", "null"}, {}}, {{"dynamic_batching", "dynamic_padding_free"}, {{"packing", "true"}}}},
     "allowed are normal, padding_free, dynamic_batching and dynamic_padding_free"},
    {{"save_epochs"},
     {{{"null"}, {}}, {{"1", "1.0"}, {{"save_strategy", "epoch"}}}},
     "qft saves checkpoints at the end of each epoch (1) or every save_steps"},
};

constexpr NoEffect kTopNoEffect[] = {
    {{"kernel_config", "init_config"}, "qft has its own kernels and reads weights straight into place"},
    {{"batching_workers"}, "one prefetch thread per rank reads the pack", {"16"}},
    {{"save_ckpt_as_hf"},
     "every checkpoint has the weights in Hugging Face's format; save_only_model: true saves nothing else",
     {"false"}},
    {{"sample_backend"}, "qft generates itself", {"hf"}},
};

constexpr Refused kTopRefused[] = {
    {{"lr_scheduler_config"},
     "version 1 of LLaMA-Factory defines no schedules yet: write lr_scheduler_type and warmup_steps or warmup_ratio",
     {"null"}},
    {{"custom_chat_template"}, "name a Jinja file in chat_template, or a template in template (docs/data.md)", {"null"}},
    {{"mp_replicate_size"},
     "write strategy: hsdp, and in hsdp_group_size the number of ranks that share the weights",
     {"null", "1"}},
};

constexpr ForeignTables kTop = {.renamed = kTopRenamed,
                                .converted = kTopConverted,
                                .sections = {"peft_config", "peft_config.name", "dist_config", "dist_config.name", "quant_config",
                                             "quant_config.name", "optim_config", "optim_config.name"},
                                .ranks = {"mp_shard_size"},
                                .data_ranks = {"dp_size"},
                                .no_effect = kTopNoEffect,
                                .refused = kTopRefused};

constexpr Renamed kLoraRenamed[] = {
    {{"peft_config.r"}, "lora_rank"},
    {{"peft_config.lora_alpha"}, "lora_alpha"},
    {{"peft_config.lora_dropout"}, "lora_dropout"},
    {{"peft_config.target_modules"}, "lora_target"},
    {{"peft_config.use_rslora"}, "use_rslora"},
    {{"peft_config.use_dora"}, "use_dora"},
    {{"peft_config.modules_to_save"}, "additional_target"},
    {{"peft_config.adapter_name_or_path"}, "adapter_name_or_path"},
    {{"peft_config.export_dir"}, "export_dir"},
    {{"peft_config.export_size"}, "export_size"},
    {{"peft_config.infer_dtype"}, "infer_dtype"},
};

constexpr Refused kLoraRefused[] = {
    {{"peft_config.export_hub_model_id"}, kHub, {"null"}},
    {{"peft_config.export_legacy_format"}, "the export is safetensors: remove the key", kOff},
};

constexpr ForeignTables kLora = {.renamed = kLoraRenamed, .refused = kLoraRefused};

constexpr Renamed kFreezeRenamed[] = {
    {{"peft_config.freeze_trainable_layers"}, "freeze_trainable_layers"},
    {{"peft_config.freeze_trainable_modules"}, "freeze_trainable_modules"},
    {{"peft_config.freeze_extra_modules"}, "freeze_extra_modules"},
};

constexpr NoEffect kFreezeNoEffect[] = {
    {{"peft_config.cast_trainable_params_to_fp32"}, "trained weights have fp32 masters", {"true"}},
};

constexpr ForeignTables kFreeze = {.renamed = kFreezeRenamed, .no_effect = kFreezeNoEffect};

constexpr Converted kFsdp2Converted[] = {
    {{"dist_config.reshard_after_forward"},
     {{{"true", "null"}, {{"strategy", "zero3"}}}, {{"false"}, {{"strategy", "shard_grad_op"}}}},
     "expected true or false"},
    {{"dist_config.offload_params"},
     {{{"true"}, {{"offload_param", "cpu"}, {"offload_optimizer", "cpu"}}}, {{"false", "null"}, {}}},
     "expected true or false"},
};

constexpr NoEffect kFsdp2NoEffect[] = {
    {{"dist_config.pin_memory"}, "transfers to a device always use pinned memory", {"true"}},
};

constexpr Refused kFsdp2Refused[] = {
    {{"dist_config.dcp_path"}, "weights are read from the model's own files: remove the key", {"null"}},
};

constexpr ForeignTables kFsdp2 = {.converted = kFsdp2Converted, .no_effect = kFsdp2NoEffect, .refused = kFsdp2Refused};

constexpr Renamed kDeepspeedRenamed[] = {
    {{"dist_config.config_file"}, "deepspeed"},
};

constexpr ForeignTables kDeepspeed = {.renamed = kDeepspeedRenamed};

constexpr Renamed kBnbRenamed[] = {
    {{"quant_config.quantization_bit"}, "quantization_bit"},
    {{"quant_config.quantization_type"}, "quantization_type"},
    {{"quant_config.double_quantization"}, "double_quantization"},
};

constexpr NoEffect kBnbNoEffect[] = {
    {{"quant_config.compute_dtype"}, "decoded weights have the type of the computation: bf16, fp16, compute_dtype"},
};

constexpr ForeignTables kBnb = {.renamed = kBnbRenamed, .no_effect = kBnbNoEffect};

constexpr Renamed kMuonRenamed[] = {
    {{"optim_config.wd"}, "weight_decay"},
    {{"optim_config.adamw_eps"}, "adam_epsilon"},
};

constexpr NoEffect kMuonNoEffect[] = {
    {{"optim_config.lr"}, "learning_rate decides"},
};

constexpr ForeignTables kMuon = {
    .renamed = kMuonRenamed,
    .combined = {"optim_config.momentum", "optim_config.nesterov", "optim_config.ns_steps", "optim_config.adamw_betas"},
    .no_effect = kMuonNoEffect};

constexpr V1Section kSections[] = {
    {"peft_config", "lora and freeze are implemented"},
    {"dist_config", "fsdp2 and deepspeed are implemented, expert parallelism is not"},
    {"quant_config", "bnb and auto are implemented"},
    {"optim_config", "muon is implemented; without optim_config the optimizer is AdamW"},
};

constexpr V1Plugin kPlugins[] = {
    {"peft_config", "lora", {{"finetuning_type", "lora"}}, {{"lora_alpha", "16"}, {"lora_dropout", "0.05"}}, kLora},
    {"peft_config", "freeze", {{"finetuning_type", "freeze"}}, {}, kFreeze},
    {"peft_config", "", {}, {{"finetuning_type", "full"}}},
    {"dist_config", "fsdp2", {}, {{"strategy", "zero3"}}, kFsdp2},
    {"dist_config", "deepspeed", {}, {}, kDeepspeed},
    {"quant_config", "bnb", {{"quantization_method", "bnb"}}, {{"quantization_bit", "4"}}, kBnb},
    {"quant_config", "auto", {{"quantization_method", "bnb"}}, {}, kBnb},
    {"optim_config", "muon", {{"optim", "muon"}}, {{"weight_decay", "0.1"}, {"adam_beta2", "0.95"}}, kMuon},
    {"optim_config", "", {}, {{"weight_decay", "0.01"}}},
};

constexpr Translation::Default kDefaults[] = {
    {"learning_rate", "1e-4"},
    {"lr_scheduler_type", "constant"},
    {"per_device_train_batch_size", "1"},
    {"bf16", "true", {"fp16", "pure_bf16", "compute_dtype", "infer_dtype"}},
    {"enable_thinking", "false"},
    {"dataloader_drop_last", "true"},
    {"logging_steps", "1"},
    {"save_strategy", "no", {"save_steps"}},
    {"max_new_tokens", "128"},
};

}  // namespace

std::vector<ForeignTables> v1_tables() {
  std::vector<ForeignTables> tables = {kTop};
  for (const V1Plugin& plugin : kPlugins)
    if (plugin.name != "auto") tables.push_back(plugin.tables);  // the same as bnb's
  return tables;
}

std::span<const V1Section> v1_sections() {
  return kSections;
}

std::span<const V1Plugin> v1_plugins() {
  return kPlugins;
}

std::span<const Translation::Default> v1_defaults() {
  return kDefaults;
}

}  // namespace qft::dialects
