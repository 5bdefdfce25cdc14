#include "qft/config/optimizers.h"

#include "foreign_table.h"

namespace qft::dialects {
namespace {

// Keys of LLaMA-Factory and of transformers' TrainingArguments.
constexpr Renamed kLlamaFactoryRenamed[] = {
    // Other names and other values for qft's keys.
    {{"evaluation_strategy"}, "eval_strategy"},
    {{"full_determinism"}, "deterministic"},
    {{"no_cuda"}, "use_cpu"},
    {{"activation_checkpointing"}, "gradient_checkpointing"},
    {{"per_gpu_train_batch_size"}, "per_device_train_batch_size"},
    {{"per_gpu_eval_batch_size"}, "per_device_eval_batch_size"},
    {{"lora_target"}, "lora_target", {{"all-linear", "all"}}},
    {{"save_total_limit"}, "save_total_limit", {{"0", "null"}, {"-1", "null"}}},
    {{"deepspeed"}, "deepspeed", kZeroNames},
    {{"fsdp"}, "fsdp", {{"fsdp2", "full_shard auto_wrap"}}},
};

constexpr Converted kLlamaFactoryConverted[] = {
    // Methods and optimizers.
    {{"use_muon"}, {{{"true"}, {{"optim", "muon"}}}, {{"false", "null"}, {}}}, "expected true or false"},
    {{"use_apollo"}, {{{"true"}, {{"optim", "apollo_adamw"}}}, {{"false", "null"}, {}}}, "expected true or false"},
    {{"use_galore"}, {{{"true"}, {{"optim", "galore_adamw"}}}, {{"false", "null"}, {}}}, "expected true or false"},
    {{"adafactor"}, {{{"true"}, {{"optim", "adafactor"}}}, {{"false", "null"}, {}}}, "expected true or false"},
};

constexpr Either kLlamaFactoryEither[] = {
    // Other names and other values for qft's keys.
    {"max_length", "cutoff_len", "max_length",
     "in LLaMA-Factory it limits prompt and answer in generation, in ms-swift and TRL the training sample: write cutoff_len for "
     "samples or max_new_tokens for answers"},
    {"system", "default_system", "system",
     "for qft generate and chat it is their system message, in ms-swift the system message of the training data: write "
     "default_system for the data"},
};

constexpr NoEffect kLlamaFactoryNoEffect[] = {
    // Model loading.
    {{"trust_remote_code"}, "qft runs no Python: architectures are built in", {"false"}},
    {{"use_fast_tokenizer"}, "the tokenizer is native", {"true"}},
    {{"low_cpu_mem_usage"}, "weights are always read straight into place", {"true"}},
    {{"cache_dir"}, kCache, {"null"}},
    {{"use_cache", "use_kv_cache"}, "generation always keeps a KV cache", {"true"}},
    {{"use_reentrant_gc", "gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"},
     "qft has one form of recomputation, with the same results",
     {"null", "true"}},
    {{"upcast_layernorm", "upcast_lmhead_output"}, "norms and log-probabilities are always computed in fp32", {"false"}},
    {{"use_unsloth_gc", "enable_liger_kernel", "use_liger_kernel", "liger_kernel_config", "use_v1_kernels"}, kKernels, kOff},
    {{"infer_backend"}, "qft generates itself", {"huggingface"}},
    {{"flash_attn"}, kAttention, {"auto"}},
    {{"offload_folder", "print_param_status", "export_device"}, "it changes no result", {"offload", "false", "cpu"}},
    {{"vllm_maxlen", "vllm_gpu_util", "vllm_enforce_eager", "vllm_max_lora_rank", "vllm_config", "sglang_maxlen",
      "sglang_mem_fraction", "sglang_tp_size", "sglang_config", "sglang_lora_backend"},
     kEngine},
    {{"quantization_device_map"}, "each rank computes on one device", {"null", "auto"}},
    {{"init_special_tokens"}, "it only matters for new tokens", {"noise_init"}},
    {{"kt_config", "kt_cpu_activation", "kt_weight_path", "kt_non_expert_weight_path", "kt_expert_checkpoint_path",
      "kt_use_lora_experts", "kt_lora_expert_num", "kt_lora_expert_intermediate_size"},
     "it only matters with use_kt"},
    // Images, video and sound.
    {{"media_dir", "image_max_pixels", "image_min_pixels", "image_do_pan_and_scan", "crop_to_patches", "video_max_pixels",
      "video_min_pixels", "video_fps", "video_maxlen", "use_audio_in_video", "audio_sampling_rate"},
     kText},
    // Running.
    {{"plot_loss"}, "qft always draws the loss (training_loss.svg)", {"true", "false"}},
    // Data.
    {{"overwrite_cache"}, "hashes of all inputs identify a pack", {"false"}},
    {{"tokenized_path"}, "output_dir keeps the packs; pack and eval_pack name other ones", {"null"}},
    {{"streaming", "buffer_size"}, "the pack is read on demand", {"false"}},
    {{"data_shared_file_system"}, "qft detects it", {"false"}},
    {{"dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers", "dataloader_prefetch_factor",
      "dataloader_multiprocessing_context", "dataloader_in_order", "accelerator_config", "split_batches", "dispatch_batches"},
     "one prefetch thread per rank reads the pack",
     {"null"}},
    {{"group_by_length", "length_column_name"}, "rows have no padding to save", {"false", "length"}},
    {{"remove_unused_columns", "label_names"}, "the template decides which columns are read", {"null", "true"}},
    // Methods and optimizers.
    {{"ppo_buffer_size", "ppo_epochs", "ppo_score_norm", "ppo_target", "ppo_whiten_rewards", "reward_model",
      "reward_model_adapters", "reward_model_quantization_bit", "reward_model_type"},
     "it belongs to a stage that qft does not have"},
    {{"badam_mode", "badam_start_block", "badam_switch_mode", "badam_switch_interval", "badam_update_ratio", "badam_mask_mode",
      "badam_verbose"},
     "it belongs to an optimizer that qft does not have"},
    {{"loraplus_lr_embedding"}, "qft does not put LoRA on embeddings", {"null", "1e-6", "1e-06", "0.000001"}},
    {{"galore_layerwise", "apollo_layerwise"},
     "gradients are summed over the batch and clipped before any layer is updated",
     kOff},
    {{"hyper_parallel_args", "hyper_parallel_cp_size"}, "it only matters with use_hyper_parallel"},
    {{"fp8_backend", "fp8_enable_fsdp_float8_all_gather"}, "it only matters with fp8"},
    {{"average_tokens_across_devices"}, "the loss is the mean over the label tokens of the global batch", {"true"}},
    {{"fp16_opt_level", "half_precision_backend", "fp16_backend", "fp16_full_eval", "bf16_full_eval"},
     "training and evaluation use compute_dtype",
     {"O1", "auto", "false"}},
    {{"torch_compile", "torch_compile_backend", "torch_compile_mode", "jit_mode_eval", "use_ipex", "torch_empty_cache_steps"},
     "it changes no result",
     kOff},
    // Logging, evaluation and checkpoints.
    {{"project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "use_swanlab", "swanlab_project",
      "swanlab_workspace", "swanlab_run_name", "swanlab_mode", "swanlab_api_key", "swanlab_logdir", "swanlab_lark_webhook_url",
      "swanlab_lark_secret"},
     kMetrics,
     kOff},
    {{"log_level_replica", "log_on_each_node", "disable_tqdm", "logging_nan_inf_filter", "debug", "skip_memory_metrics",
      "include_num_input_tokens_seen", "include_tokens_per_second", "include_effective_tokens_per_second",
      "enable_torch_profiler", "profiler_output_dir", "profiler_wait_steps", "profiler_warmup_steps", "profiler_active_steps",
      "profiler_repeat", "profiler_record_shapes", "profiler_profile_memory", "profiler_with_stack", "profile_modules"},
     "the log always has throughput, token counts, memory and the seconds of each phase",
     kOff},
    {{"eval_accumulation_steps", "eval_do_concat_batches", "eval_use_gather_object", "batch_eval_metrics", "prediction_loss_only",
      "include_for_metrics", "include_inputs_for_metrics", "use_legacy_prediction_loop", "past_index"},
     "evaluation sums over the ranks batch by batch",
     {"null", "false"}},
    {{"generation_max_length"}, "max_new_tokens and max_length decide", {"null"}},
    {{"length_penalty"}, "it only matters for beam search", {"1", "1.0"}},
    {{"save_on_each_node", "enable_jit_checkpoint", "restore_callback_states_from_checkpoint"},
     "checkpoints always do this",
     {"false"}},
    {{"hub_model_id", "hub_strategy", "hub_token", "hub_private_repo", "hub_always_push", "hub_revision", "push_to_hub_model_id",
      "push_to_hub_organization", "push_to_hub_token"},
     "qft does not upload"},
    {{"export_quantization_dataset", "export_quantization_nsamples", "export_quantization_maxlen"},
     "the 4-bit format is bitsandbytes' nf4, which needs no data"},
    // Launching and distribution.
    {{"local_rank", "ddp_backend", "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph",
      "sharded_ddp", "xpu_backend", "mp_parameters", "tpu_num_cores", "tpu_metrics_debug", "use_mps_device", "dispatch_backend"},
     "mpirun starts the ranks and qft reduces the gradients",
     {"null", "false", "-1"}},
    {{"fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"}, "qft shards by the model's layers", {"null", "0"}},
    {{"master_addr", "master_port", "ray_num_workers", "ray_init_kwargs", "ray_scope", "ray_run_name", "ray_storage_path",
      "resources_per_worker", "placement_strategy"},
     kRanks},
};

constexpr Refused kLlamaFactoryRefused[] = {
    // Model loading.
    {{"hf_hub_token", "ms_hub_token", "om_hub_token"}, kToken, {"null"}},
    {{"use_unsloth"}, "qft does not run unsloth: remove the key", kOff},
    {{"shift_attn", "mixture_of_depths"}, "it changes the model and is not implemented: remove the key", kOff},
    {{"train_from_scratch"}, "qft only fine-tunes: give the folder of a model with weights", kOff},
    {{"resize_vocab", "add_tokens", "add_special_tokens", "new_special_tokens_config"}, kVocabulary, kOff},
    {{"split_special_tokens"}, "special tokens are always one token each: remove the key", kOff},
    {{"use_kt"}, "qft does not use KTransformers: remove the key", kOff},
    // Images, video and sound.
    {{"freeze_vision_tower", "freeze_multi_modal_projector"}, kTower, kFrozen},
    {{"train_mm_proj_only"}, "qft trains only the text model: remove the key, or set it to false", kOff},
    {{"freeze_language_model"}, "models are text only, so nothing would be left to train", kOff},
    // Data.
    {{"train_sampling_strategy"}, "qft shuffles samples: use disable_shuffling for source order", {"random", "group_by_length"}},
    {{"ignore_pad_token_for_loss"}, "there is no padding that could enter the loss: remove the key", {"true"}},
    {{"num_beams", "eval_num_beams", "generation_num_beams"}, "beam search is not implemented: remove the key", {"null", "1"}},
    // Methods and optimizers.
    {{"ref_model_quantization_bit"}, "ref_model computes in the run's type: remove the key", {"null"}},
    {{"use_badam", "use_adam_mini"}, config::kOptimizersHere, kOff},
    {{"coft"},
     "it changes weights in each forward pass, and several ranks may share a block: remove it (a smaller learning_rate keeps "
     "rotations small)",
     kOff,
     {"oft"}},
    {{"module_dropout"},
     "PEFT's OFT ignores it, so LLaMA-Factory trains without it: set it to 0 for the same training",
     {"null", "0", "0.0"},
     {"oft"}},
    {{"galore_target"}, "only all is implemented, every matrix of the layers: remove it", {"null", "all"}, {"galore_adamw"}},
    {{"apollo_target"}, "only all is implemented, every matrix of the layers: remove it", {"null", "all"}, {"apollo_adamw"}},
    {{"optim_target_modules"}, "GaLore and APOLLO project every matrix of the layers: remove the key", {"null"}},
    {{"label_smoothing_factor"}, "it is not implemented: remove the key", {"null", "0", "0.0"}},
    {{"use_mca", "use_megatron_bridge", "use_hyper_parallel"}, "qft does not use these backends: remove the key", kOff},
    {{"fp8"}, "fp8 training is not implemented: use bf16", kOff},
    {{"auto_find_batch_size"}, "qft keeps the given batch size: qft plan shows what fits", kOff},
    // Logging, evaluation and checkpoints.
    {{"logging_strategy"}, "log lines are written every logging_steps: set logging_steps", {"steps"}},
    {{"eval_delay", "eval_on_start"},
     "only eval_strategy and eval_steps decide about evaluations: remove the key",
     {"null", "false", "0", "0.0"}},
    {{"generation_config"}, "set temperature, top_p, top_k and others in the run file", {"null"}},
    {{"sortish_sampler"}, "data_seed decides the sample order: remove the key", kOff},
    {{"save_safetensors"}, "weights are always saved as safetensors: remove the key", {"true"}},
    {{"ignore_data_skip"}, "a resumed run continues with the next samples instead of the first ones: remove the key", kOff},
    {{"push_to_hub", "export_hub_model_id"}, "qft does not upload: use the hub's own tool", kOff},
    {{"export_legacy_format"}, "the export is safetensors: remove the key", kOff},
};

constexpr ForeignTables kTablesLlamaFactory = {.renamed = kLlamaFactoryRenamed,
                                               .converted = kLlamaFactoryConverted,
                                               .either = kLlamaFactoryEither,
                                               .no_effect = kLlamaFactoryNoEffect,
                                               .refused = kLlamaFactoryRefused};

}  // namespace

const ForeignTables& llama_factory_tables() {
  return kTablesLlamaFactory;
}

}  // namespace qft::dialects
