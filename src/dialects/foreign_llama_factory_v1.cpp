#include "llama_factory_v1.h"

namespace qft::dialects {
namespace {

using Class = ForeignKey::Class;

constexpr std::string_view kHub = "qft does not upload: use the hub's own tool";

// The sections, and the keys outside of them.
constexpr ForeignRow kTop[] = {
    {.kind = Class::section,
     .names = "peft_config peft_config.name dist_config dist_config.name quant_config quant_config.name optim_config "
              "optim_config.name"},
    {kRefused, "lr_scheduler_config",
     "version 1 of LLaMA-Factory defines no schedules yet: write lr_scheduler_type and warmup_steps or warmup_ratio", "null"},
    {kNoEffect, "kernel_config init_config", "qft has its own kernels and reads weights straight into place", ""},
    converted("model_class", "llm|null:; cls: stage=rm", "qft trains language models and reward models"),
    {kRefused, "custom_chat_template", "name a Jinja file in chat_template, or a template in template (docs/data.md)", "null"},
    {kRefused, "cp_size", "context parallelism is not implemented: remove the key", "null|1"},
    {kNoEffect, "cp_mode", "it only matters with cp_size", "null|ulysses"},
    {.kind = Class::ranks, .names = "dp_size mp_shard_size"},
    {kRefused, "mp_replicate_size", "write strategy: hsdp, and in hsdp_group_size the number of ranks that share the weights",
     "null|1"},
    renamed("dist_timeout", "ddp_timeout"),
    converted("batching_strategy", "normal|padding_free|null:; dynamic_batching|dynamic_padding_free: packing=true",
              "allowed are normal, padding_free, dynamic_batching and dynamic_padding_free"),
    {kNoEffect, "batching_workers", "one prefetch thread per rank reads the pack", "16"},
    converted("save_epochs", "null:; 1|1.0: save_strategy=epoch",
              "qft saves checkpoints at the end of each epoch (1) or every save_steps"),
    {kNoEffect, "save_ckpt_as_hf",
     "every checkpoint has the weights in Hugging Face's format; save_only_model: true saves nothing else", "false"},
    {kNoEffect, "sample_backend", "qft generates itself", "hf"},
};

constexpr ForeignRow kLora[] = {
    renamed("peft_config.r", "lora_rank"),
    renamed("peft_config.lora_alpha", "lora_alpha"),
    renamed("peft_config.lora_dropout", "lora_dropout"),
    renamed("peft_config.target_modules", "lora_target"),
    renamed("peft_config.use_rslora", "use_rslora"),
    renamed("peft_config.use_dora", "use_dora"),
    renamed("peft_config.modules_to_save", "additional_target"),
    renamed("peft_config.adapter_name_or_path", "adapter_name_or_path"),
    renamed("peft_config.export_dir", "export_dir"),
    renamed("peft_config.export_size", "export_size"),
    renamed("peft_config.infer_dtype", "infer_dtype"),
    {kRefused, "peft_config.export_hub_model_id", kHub, "null"},
    {kRefused, "peft_config.export_legacy_format", "the export is safetensors: remove the key", kOff},
};

constexpr ForeignRow kFreeze[] = {
    renamed("peft_config.freeze_trainable_layers", "freeze_trainable_layers"),
    renamed("peft_config.freeze_trainable_modules", "freeze_trainable_modules"),
    renamed("peft_config.freeze_extra_modules", "freeze_extra_modules"),
    {kNoEffect, "peft_config.cast_trainable_params_to_fp32", "trained weights have fp32 masters", "true"},
};

constexpr ForeignRow kFsdp2[] = {
    converted("dist_config.reshard_after_forward", "true|null: strategy=zero3; false: strategy=shard_grad_op",
              "expected true or false"),
    converted("dist_config.offload_params",
              "true: offload_param=cpu offload_optimizer=cpu; false|null:", "expected true or false"),
    {kNoEffect, "dist_config.pin_memory", "transfers to a device always use pinned memory", "true"},
    {kRefused, "dist_config.dcp_path", "weights are read from the model's own files: remove the key", "null"},
};

constexpr ForeignRow kDeepspeed[] = {renamed("dist_config.config_file", "deepspeed")};

constexpr ForeignRow kBnb[] = {
    renamed("quant_config.quantization_bit", "quantization_bit"),
    renamed("quant_config.quantization_type", "quantization_type"),
    renamed("quant_config.double_quantization", "double_quantization"),
    {kNoEffect, "quant_config.compute_dtype", "decoded weights have the type of the computation: bf16, fp16, compute_dtype", ""},
};

constexpr ForeignRow kMuon[] = {
    renamed("optim_config.wd", "weight_decay"),
    renamed("optim_config.adamw_eps", "adam_epsilon"),
    {.kind = Class::combined,
     .names = "optim_config.momentum optim_config.nesterov optim_config.ns_steps optim_config.adamw_betas"},
    {kNoEffect, "optim_config.lr", "learning_rate decides", ""},
};

constexpr V1Section kSections[] = {
    {"peft_config", "lora and freeze are implemented"},
    {"dist_config", "fsdp2 and deepspeed are implemented, expert parallelism is not"},
    {"quant_config", "bnb and auto are implemented"},
    {"optim_config", "muon is implemented; without optim_config the optimizer is AdamW"},
};

constexpr V1Plugin kPlugins[] = {
    {"peft_config", "lora", "finetuning_type=lora", "lora_alpha=16 lora_dropout=0.05", kLora},
    {"peft_config", "freeze", "finetuning_type=freeze", "", kFreeze},
    {"peft_config", "", "", "finetuning_type=full"},
    {"dist_config", "fsdp2", "", "strategy=zero3", kFsdp2},
    {"dist_config", "deepspeed", "", "", kDeepspeed},
    {"quant_config", "bnb", "quantization_method=bnb", "quantization_bit=4", kBnb},
    {"quant_config", "auto", "quantization_method=bnb", "", kBnb},
    {"optim_config", "muon", "optim=muon", "weight_decay=0.1 adam_beta2=0.95", kMuon},
    {"optim_config", "", "", "weight_decay=0.01"},
};

constexpr Translation::Default kDefaults[] = {
    {"learning_rate", "1e-4"},
    {"lr_scheduler_type", "constant"},
    {"per_device_train_batch_size", "1"},
    {"bf16", "true", "fp16|pure_bf16|compute_dtype|infer_dtype"},
    {"enable_thinking", "false"},
    {"dataloader_drop_last", "true"},
    {"logging_steps", "1"},
    {"save_strategy", "no", "save_steps"},
    {"max_new_tokens", "128"},
};

}  // namespace

std::span<const ForeignRow> v1_rows() {
  static const std::vector<ForeignRow> rows = [] {
    std::vector<ForeignRow> all(std::begin(kTop), std::end(kTop));
    for (const V1Plugin& plugin : kPlugins)
      if (plugin.name != "auto") all.insert(all.end(), plugin.rows.begin(), plugin.rows.end());
    return all;
  }();
  return rows;
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
