#include "foreign_table.h"

#include "qft/core/error.h"

namespace qft::config {
namespace {

constexpr auto kMoot = ForeignKey::Class::moot;
constexpr auto kRefused = ForeignKey::Class::refused;

using Row = ForeignRow;

constexpr Row renamed(std::string_view names, std::string_view key, std::string_view words = {}) {
  return {.kind = ForeignKey::Class::renamed, .names = names, .key = key, .words = words};
}

constexpr Row converted(std::string_view names, std::string_view rules, std::string_view reason) {
  return {.kind = ForeignKey::Class::converted, .names = names, .reason = reason, .words = rules};
}

constexpr Row either(std::string_view name, std::string_view swift, std::string_view otherwise, std::string_view meanings) {
  return {.kind = ForeignKey::Class::either, .names = name, .reason = meanings, .key = swift, .words = otherwise};
}

constexpr std::string_view kOff = "null|false|no";
constexpr std::string_view kZeroNames =
    "default-zero0=zero0|default-zero1=zero1|default-zero2=zero2|default-zero3=zero3|default-zero2-offload=zero2_offload|"
    "default-zero3-offload=zero3_offload|zero2-offload=zero2_offload|zero3-offload=zero3_offload";

constexpr Row kLlamaFactory[] = {
    // Other names of honoured keys, and other words for their values.
    renamed("evaluation_strategy", "eval_strategy"),
    renamed("full_determinism", "deterministic"),
    renamed("no_cuda", "use_cpu"),
    renamed("activation_checkpointing", "gradient_checkpointing"),
    renamed("per_gpu_train_batch_size", "per_device_train_batch_size"),
    renamed("per_gpu_eval_batch_size", "per_device_eval_batch_size"),
    renamed("lora_target", "lora_target", "all-linear=all"),
    renamed("save_total_limit", "save_total_limit", "0=null|-1=null"),
    renamed("deepspeed", "deepspeed", kZeroNames),
    renamed("fsdp", "fsdp", "fsdp2=full_shard auto_wrap"),
    either("max_length", "cutoff_len", "max_length",
           "to LLaMA-Factory it is the tokens of prompt and answer in generation, to ms-swift and TRL the longest training "
           "sample: write cutoff_len for the sample, max_new_tokens for the answer"),
    either("system", "default_system", "system",
           "to qft generate and chat it is their system message, to ms-swift that of the training data: write "
           "default_system for the data"),

    // Model loading.
    {kMoot, "trust_remote_code", "no Python is run: architectures are built in", "false"},
    {kMoot, "use_fast_tokenizer", "the tokenizer is native", "true"},
    {kMoot, "low_cpu_mem_usage", "weights are always read straight into place", "true"},
    {kMoot, "cache_dir model_revision hf_hub_token ms_hub_token om_hub_token",
     "nothing is downloaded: model_name_or_path is a folder", "null|main"},
    {kMoot, "use_cache use_kv_cache", "generation always keeps a KV cache", "true"},
    {kMoot, "use_reentrant_gc gradient_checkpointing_kwargs activation_checkpointing_kwargs",
     "recomputation has one form here, with the same results", "null|true"},
    {kMoot, "upcast_layernorm upcast_lmhead_output",
     "norms and log-probabilities are always computed in fp32", "false"},
    {kMoot, "use_unsloth_gc enable_liger_kernel use_liger_kernel liger_kernel_config use_v1_kernels",
     "qft has kernels of its own", kOff},
    {kMoot, "infer_backend", "qft generates itself", "huggingface"},
    {kMoot, "flash_attn", "attention takes the fastest kernel that fits; results differ in rounding only",
     "auto"},
    {kMoot, "offload_folder print_param_status export_device", "it changes no result", "offload|false|cpu"},
    {kMoot,
     "vllm_maxlen vllm_gpu_util vllm_enforce_eager vllm_max_lora_rank vllm_config sglang_maxlen "
     "sglang_mem_fraction "
     "sglang_tp_size sglang_config sglang_lora_backend",
     "it belongs to another inference engine", ""},
    {kRefused, "rope_scaling", "set rope_scaling in the model's config.json instead", "null"},
    {kRefused, "quantization_bit",
     "quantized base weights are not implemented: remove it to train on bf16 weights", "null"},
    {kMoot, "quantization_method quantization_type double_quantization quantization_device_map",
     "it has a meaning with quantization_bit only", ""},
    {kRefused, "use_unsloth", "qft does not run unsloth: remove it", kOff},
    {kRefused, "shift_attn mixture_of_depths", "it changes the model and is not implemented: remove it",
     kOff},
    {kRefused, "train_from_scratch", "qft fine-tunes: give the folder of a model with weights", kOff},
    {kRefused, "resize_vocab add_tokens add_special_tokens new_special_tokens_config",
     "qft does not change the vocabulary: add the tokens to the model and its tokenizer first", kOff},
    {kMoot, "init_special_tokens", "it has a meaning with new tokens only", "noise_init"},
    {kRefused, "split_special_tokens", "special tokens are always one token each: remove it", kOff},
    {kRefused, "moe_aux_loss_coef", "the router's auxiliary loss is not implemented: remove it",
     "null|0|0.0"},
    {kRefused, "use_kt", "KTransformers is not part of qft: remove it", kOff},
    {kMoot,
     "kt_config kt_cpu_activation kt_weight_path kt_non_expert_weight_path kt_expert_checkpoint_path "
     "kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size",
     "it has a meaning with use_kt only", ""},

    // Sections of LLaMA-Factory's version 1.
    {kRefused, "model_class", "qft trains language models: remove it", "llm|null"},
    {kRefused, "peft_config", "write finetuning_type, lora_rank, lora_alpha, lora_dropout and lora_target in the run file", "null"},
    {kRefused, "dist_config", "write strategy, deepspeed or fsdp in the run file", "null"},
    {kRefused, "quant_config", "quantized base weights are not implemented: remove it to train on bf16 weights", "null"},
    {kRefused, "optim_config", "AdamW takes learning_rate, weight_decay, adam_beta1, adam_beta2, adam_epsilon", "null"},
    {kRefused, "cp_mode cp_size", "context parallelism is not implemented: remove it", "null|1"},
    {kRefused, "batching_strategy", "max_tokens_per_micro_batch limits what a micro-batch holds", "null|normal|padding_free"},
    {kMoot, "kernel_config init_config sample_backend", "qft has kernels of its own, and reads weights straight into place", ""},

    // Images, video and sound.
    {kMoot,
     "media_dir image_max_pixels image_min_pixels image_do_pan_and_scan crop_to_patches video_max_pixels "
     "video_min_pixels video_fps video_maxlen use_audio_in_video audio_sampling_rate freeze_vision_tower "
     "freeze_multi_modal_projector",
     "models are text only", ""},
    {kRefused, "freeze_language_model", "models are text only: nothing would be left to train", kOff},

    // Running.
    {kMoot, "plot_loss", "the loss is always drawn (training_loss.svg)", "true|false"},

    // Data.
    {kMoot, "overwrite_cache", "a pack is known by the hashes of all it depends on", "false"},
    {kMoot, "tokenized_path", "packs are kept in output_dir; pack and eval_pack name others", "null"},
    {kMoot, "streaming buffer_size", "the pack is read as it is needed", "false"},
    {kMoot, "data_shared_file_system", "qft finds out itself", "false"},
    {kMoot,
     "dataloader_num_workers dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor "
     "dataloader_multiprocessing_context dataloader_in_order accelerator_config split_batches "
     "dispatch_batches",
     "one prefetch thread per rank reads the pack", "null"},
    {kMoot, "group_by_length length_column_name", "rows have no padding that it could save", "false|length"},
    {kMoot, "remove_unused_columns label_names", "only the template decides what is read", "null|true"},
    {kRefused, "train_sampling_strategy", "samples are shuffled: use disable_shuffling for source order",
     "random|group_by_length"},
    {kRefused, "ignore_pad_token_for_loss", "there is no padding that could enter the loss: remove it",
     "true"},
    {kRefused, "dataloader_drop_last",
     "the last batch of an epoch is trained on: lower max_steps to end before it", kOff},
    {kRefused, "num_beams eval_num_beams generation_num_beams", "beam search is not implemented: remove it",
     "null|1"},

    // Methods and optimizers.
    {kMoot,
     "pref_beta pref_ftx pref_bco_weight pref_loss dpo_label_smoothing simpo_gamma ld_alpha "
     "ref_model_adapters "
     "ref_model ref_model_quantization_bit",
     "it is used by preference training, which qft train refuses by stage", ""},
    {kMoot,
     "kto_chosen_weight kto_rejected_weight ppo_buffer_size ppo_epochs ppo_score_norm ppo_target "
     "ppo_whiten_rewards "
     "reward_model reward_model_adapters reward_model_quantization_bit reward_model_type",
     "it is used by stages that qft refuses", ""},
    {kMoot, "module_dropout oft_rank oft_block_size oft_target", "it is used by finetuning_type oft only",
     ""},
    {kRefused, "use_galore use_apollo use_badam use_adam_mini use_muon adafactor",
     "AdamW is the optimizer of this build: remove it", kOff},
    {kMoot,
     "galore_target galore_rank galore_update_interval galore_scale galore_proj_type galore_layerwise "
     "apollo_target "
     "apollo_rank apollo_update_interval apollo_scale apollo_proj apollo_proj_type apollo_scale_type "
     "apollo_layerwise "
     "apollo_scale_front badam_mode badam_start_block badam_switch_mode badam_switch_interval "
     "badam_update_ratio "
     "badam_mask_mode badam_verbose",
     "it is used by an optimizer that qft refuses", ""},
    {kRefused, "optim_args optim_target_modules",
     "AdamW takes weight_decay, adam_beta1, adam_beta2, adam_epsilon", "null"},
    {kRefused, "lr_scheduler_kwargs", "the implemented schedules take none: remove it", "null"},
    {kRefused, "use_llama_pro", "block expansion is not implemented: remove it", kOff},
    {kRefused, "use_dft_loss use_asft_loss use_eaft_loss", "the loss is cross-entropy: remove it", kOff},
    {kMoot, "asft_alpha eaft_alpha", "it is used by losses that qft refuses", ""},
    {kRefused, "label_smoothing_factor neftune_noise_alpha", "it is not implemented: remove it",
     "null|0|0.0"},
    {kRefused, "use_mca use_megatron_bridge use_hyper_parallel", "qft runs by itself: remove it", kOff},
    {kMoot, "hyper_parallel_args hyper_parallel_cp_size", "it is used by use_hyper_parallel only", ""},
    {kRefused, "fp8", "fp8 training is not implemented: use bf16", kOff},
    {kMoot, "fp8_backend fp8_enable_fsdp_float8_all_gather", "it has a meaning with fp8 only", ""},
    {kMoot, "average_tokens_across_devices", "the loss is the mean over the label tokens of the global batch",
     "true"},
    {kMoot, "fp16_opt_level half_precision_backend fp16_backend fp16_full_eval bf16_full_eval",
     "training and evaluation use compute_dtype", "O1|auto|false"},
    {kMoot,
     "torch_compile torch_compile_backend torch_compile_mode jit_mode_eval use_ipex torch_empty_cache_steps",
     "it changes no result", kOff},
    {kRefused, "auto_find_batch_size", "the batch size stays as asked: qft plan tells what fits", kOff},
    {kRefused, "parallelism_config tp_size", "tensor and context parallelism are not implemented: remove it",
     "null|0|1"},

    // Logging, evaluation and checkpoints.
    {kMoot, "report_to", "metrics go to trainer_log.jsonl in output_dir", "none|null"},
    {kMoot,
     "run_name project trackio_space_id trackio_bucket_id trackio_static_space_id logging_dir use_swanlab "
     "swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir "
     "swanlab_lark_webhook_url swanlab_lark_secret",
     "metrics go to trainer_log.jsonl in output_dir", kOff},
    {kMoot,
     "log_level_replica log_on_each_node disable_tqdm logging_nan_inf_filter debug skip_memory_metrics "
     "include_num_input_tokens_seen include_tokens_per_second include_effective_tokens_per_second "
     "enable_torch_profiler profiler_output_dir profiler_wait_steps profiler_warmup_steps "
     "profiler_active_steps "
     "profiler_repeat profiler_record_shapes profiler_profile_memory profiler_with_stack profile_modules",
     "the log always has throughput, token counts, memory and the seconds of each phase", kOff},
    {kRefused, "logging_strategy", "log lines are written every logging_steps: set these", "steps"},
    {kMoot,
     "eval_accumulation_steps eval_do_concat_batches eval_use_gather_object batch_eval_metrics "
     "prediction_loss_only "
     "include_for_metrics include_inputs_for_metrics use_legacy_prediction_loop past_index",
     "evaluation sums over the ranks as it goes", "null|false"},
    {kRefused, "eval_delay eval_on_start", "evaluations follow eval_strategy and eval_steps alone: remove it",
     "null|false|0|0.0"},
    {kMoot, "generation_max_length", "max_new_tokens and max_length decide", "null"},
    {kMoot, "length_penalty", "it has a meaning in beam search only", "1|1.0"},
    {kRefused, "generation_config", "set temperature, top_p, top_k and the like in the run file", "null"},
    {kRefused, "sortish_sampler", "the sample order follows data_seed: remove it", kOff},
    {kRefused, "save_safetensors", "weights are always saved as safetensors: remove it", "true"},
    {kMoot, "save_on_each_node enable_jit_checkpoint restore_callback_states_from_checkpoint",
     "checkpoints take care of that themselves", "false"},
    {kRefused, "ignore_data_skip",
     "a resumed run takes the next samples, not the first ones again: remove it", kOff},
    {kRefused, "push_to_hub export_hub_model_id", "qft does not upload: do it with the hub's own tool", kOff},
    {kMoot,
     "hub_model_id hub_strategy hub_token hub_private_repo hub_always_push hub_revision push_to_hub_model_id "
     "push_to_hub_organization push_to_hub_token",
     "qft does not upload", ""},
    {kRefused, "export_quantization_bit", "the export is not quantized: remove it", "null"},
    {kMoot, "export_quantization_dataset export_quantization_nsamples export_quantization_maxlen",
     "it has a meaning with export_quantization_bit only", ""},
    {kRefused, "export_legacy_format", "the export is safetensors: remove it", kOff},

    // Launching and distribution.
    {kMoot,
     "local_rank ddp_backend ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
     "ddp_static_graph "
     "sharded_ddp xpu_backend mp_parameters tpu_num_cores tpu_metrics_debug use_mps_device dispatch_backend",
     "ranks come from mpirun and gradients are reduced by qft", "null|false|-1"},
    {kMoot, "fsdp_min_num_params fsdp_transformer_layer_cls_to_wrap", "blocks are the model's layers",
     "null|0"},
    {kMoot,
     "master_addr master_port ray_num_workers ray_init_kwargs ray_scope ray_run_name ray_storage_path "
     "resources_per_worker placement_strategy",
     "mpirun or srun starts the ranks: no rendezvous is needed", ""},
};

constexpr std::string_view kTuner = "it is used by a method that qft refuses";
constexpr std::string_view kEngine = "it belongs to another inference engine";
constexpr std::string_view kMetrics = "metrics go to trainer_log.jsonl in output_dir";
constexpr std::string_view kText = "models are text only";

// ms-swift, versions 2 to 4 (TRL has torch_dtype, dataset_num_proc and a few more by the same names).
constexpr Row kSwift[] = {
    // Model.
    renamed("model model_id_or_path", "model_name_or_path"),
    renamed("adapters", "adapter_name_or_path"),
    {kRefused, "ckpt_dir", "a folder of LoRA weights is adapter_name_or_path, one of a whole model model_name_or_path", "null"},
    converted("torch_dtype",
              "bfloat16|bf16|torch.bfloat16: bf16=true; float16|fp16|torch.float16: fp16=true; "
              "float32|fp32|torch.float32: compute_dtype=float32; auto|AUTO|null:",
              "there are bfloat16, float16 and float32"),
    {kMoot, "model_type", "the model's config.json says what it is", "null"},
    {kMoot, "attn_impl use_flash_attn", "attention takes the fastest kernel that fits; results differ in rounding only",
     "null|auto"},
    {kMoot, "experts_impl enable_npu_model_patch", "qft has kernels of its own", "null|true"},
    {kMoot, "use_hf local_repo_path check_model check_model_is_latest model_cache_dir",
     "nothing is downloaded: model_name_or_path is a folder", "null|false"},
    {kRefused, "device_map device_map_config device_map_config_path device_max_memory model_kwargs",
     "a rank computes on one device: strategy: zero3 splits a model over the ranks", "null|auto"},
    {kRefused, "init_strategy", "qft fine-tunes a model that has all its weights: remove it", "null"},
    {kMoot, "max_model_len", "the model's config.json says how long its texts may be", "null"},
    converted("task_type", "causal_lm|CAUSAL_LM|null:",
              "qft trains language models: classifiers, embeddings and rerankers are not implemented"),
    {kRefused, "num_labels problem_type mrl_dims", "classifiers, embeddings and rerankers are not implemented", "null"},
    {kRefused, "router_aux_loss_coef", "the router's auxiliary loss is not implemented: remove it", "null|0|0.0"},
    {kRefused, "new_special_tokens",
     "qft does not change the vocabulary: add the tokens to the model and its tokenizer first", "null"},
    {kRefused, "quant_bits quant_method", "quantized base weights are not implemented: remove it to train on bf16 weights",
     "null|0"},
    {kMoot,
     "bnb_4bit_compute_dtype bnb_4bit_comp_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage "
     "hqq_axis hqq_dynamic_config_path quant_n_samples quant_batch_size quant_seqlen quant_device_map group_size",
     "it has a meaning with quant_bits only", ""},

    // Method.
    converted("tuner_type train_type sft_type", "lora: finetuning_type=lora; full: finetuning_type=full",
              "lora and full are implemented"),
    converted("tuner_backend", "peft|swift|null:", "qft trains by itself: remove it"),
    renamed("target_modules lora_target_modules", "lora_target", "all-linear=all|ALL=all"),
    {kRefused, "target_regex target_parameters lora_target_regex", "name the modules in lora_target", "null"},
    renamed("modules_to_save lora_modules_to_save", "additional_target"),
    renamed("lora_dropout_p", "lora_dropout"),
    {kRefused, "lora_bias lora_bias_trainable bias", "biases stay as they are: remove it", "none|null"},
    {kMoot, "lora_dtype", "trained weights have fp32 masters", "null"},
    renamed("lorap_lr_ratio lora_lr_ratio", "loraplus_lr_ratio"),
    converted("init_weights init_lora_weights", "true|null:; pissa: pissa_init=true",
              "LoRA starts from PEFT's default (true), or by pissa"),
    {kRefused, "use_swift_lora use_loss_scale use_flash_ckpt use_ray", "it is not implemented: remove it", kOff},
    {kRefused, "lisa_activated_layers", "LISA is not implemented: remove it", "null|0"},
    {kRefused,
     "freeze_parameters freeze_parameters_regex freeze_parameters_ratio trainable_parameters trainable_parameters_regex "
     "additional_trainable_parameters",
     "finetuning_type says what is trained: lora or full", "null|0|0.0"},
    {kMoot,
     "lora_ga_batch_size lora_ga_iters lora_ga_max_length lora_ga_direction lora_ga_scale lora_ga_stable_gamma "
     "fourier_n_frequency fourier_scaling boft_block_size boft_block_num boft_n_butterfly_factor boft_dropout "
     "boft_target_modules boft_modules_to_save vera_rank vera_projection_prng_key vera_dropout vera_d_initial "
     "vera_target_modules vera_modules_to_save adapter_act adapter_length adalora_target_r adalora_init_r adalora_tinit "
     "adalora_tfinal adalora_deltaT adalora_beta1 adalora_beta2 adalora_orth_reg_weight llamapro_num_new_blocks "
     "llamapro_num_groups reft_layer_key reft_layers reft_rank reft_intervention_type reft_args ia3_feedforward_modules "
     "ia3_target_modules ia3_modules_to_save lisa_step_interval galore_target_modules galore_update_proj_gap "
     "galore_optim_per_parameter galore_with_embedding galore_quantization galore_proj_quant galore_proj_bits "
     "galore_proj_group_size galore_cos_threshold galore_gamma_proj galore_queue_size galore_config neftune_backend "
     "loss_scale_config_path",
     kTuner, ""},
    {kRefused, "neftune_alpha", "it is not implemented: remove it", "null|0|0.0"},
    {kRefused, "enable_dft_loss enable_channel_loss", "the loss is cross-entropy over all samples: remove it", kOff},
    {kRefused, "loss_type loss_name", "the loss is cross-entropy: remove it", "null|cross_entropy"},
    converted("loss_scale", "default|null:; last_round: mask_history=true; all: train_on_prompt=true",
              "tokens have no weights of their own: there are default, last_round and all"),
    {kMoot, "is_binary_loss_scale acc_strategy acc_steps use_logits_to_keep gpu_memory_fraction test_oom_error",
     "it changes no result", ""},
    {kMoot, "use_liger", "qft has kernels of its own", kOff},
    {kRefused, "rlhf_type", "preference and reward training are not implemented: stages pt and sft run", "null"},

    // Data.
    renamed("custom_train_dataset_path", "dataset"),
    renamed("val_dataset custom_val_dataset_path", "eval_dataset"),
    renamed("split_dataset_ratio dataset_test_ratio", "val_size"),
    renamed("dataset_num_proc preprocess_num_proc", "preprocessing_num_workers"),
    renamed("template_type", "template"),
    {kMoot, "model_author", "texts stay as they are: write the names into the data", "null"},
    either("model_name", "", "",
           "to ms-swift it is the name that self-cognition data give the model, which qft expects in the data, to others the model: "
           "write model_name_or_path for that"),
    {kRefused, "cached_dataset cached_val_dataset", "make a pack of the data by qft-pack, and name it by pack or eval_pack", "null"},
    {kRefused, "custom_dataset_info", "write its entries to dataset_info.json in dataset_dir", "null"},
    {kRefused, "columns", "name the columns in dataset_info.json", "null"},
    {kRefused, "external_plugins custom_register_path callbacks",
     "qft runs no Python: write the data as JSON lines", "null"},
    {kRefused, "self_cognition_sample train_dataset_sample val_dataset_sample train_dataset_mix_ratio train_dataset_mix_ds",
     "write how many samples are drawn behind the name: dataset: name#500", "null|0|0.0|-1"},
    {kRefused, "streaming_val_size", "hold out samples by val_size", "null|0"},
    {kMoot, "load_from_cache_file download_mode", "a pack is known by the hashes of all it depends on", ""},
    {kMoot, "lazy_tokenize shuffle_buffer_size streaming_buffer_size packing_num_proc",
     "data are packed once, and the pack is read as it is needed", ""},
    {kMoot, "padding_free padding_side", "sequences lie end to end: there is no padding", "null|true|false|right"},
    {kRefused, "packing_length", "rows have cutoff_len tokens: set that", "null"},
    {kRefused, "packing_strategy", "rows are filled best-fit: remove it", "binpack|null"},
    converted("dataset_shuffle train_dataloader_shuffle train_sampler_random", "true|null:; false: disable_shuffling=true",
              "expected true or false"),
    {kMoot, "val_dataset_shuffle strict disable_auto_column_mapping check_dataset_strategy show_dataset_sample",
     "evaluation has no order; every record is checked", ""},
    converted("interleave_prob", "null:; *: interleave_probs=* mix_strategy?=interleave_under", "expected probabilities"),
    {kRefused, "stopping_strategy", "set mix_strategy: interleave_over", "first_exhausted|null"},
    converted("truncation_strategy", "right|truncation_right|null:",
              "samples are cut at their end (right); leave longer ones out of the data, or raise cutoff_len"),
    converted("agent_template tools_prompt", "null:; hermes: tool_format=qwen; llama3: tool_format=llama3; mistral: tool_format=mistral",
              "tool_format has qwen (hermes), llama3, mistral and default"),
    converted("use_chat_template", "true|null:", "raw texts are learned by stage: pt"),
    {kRefused, "response_prefix stop_words", "the template says where answers begin and end: remove it", "null"},
    {kRefused, "template_backend", "templates are qft's own: remove it", "swift|null"},
    {kRefused, "add_non_thinking_prefix", "enable_thinking says what becomes of thoughts", "true|null"},
    {kMoot, "disable_ignore_empty_think template_mode", "enable_thinking says what becomes of thoughts", ""},
    {kMoot,
     "max_pixels norm_bbox rescale_image vit_gradient_checkpointing vit_use_gc vit_lr aligner_lr freeze_vit freeze_aligner",
     kText, ""},
    {kRefused, "freeze_llm", "models are text only: nothing would be left to train", kOff},

    // Running.
    renamed("eval_batch_size", "per_device_eval_batch_size"),
    renamed("early_stop_interval", "early_stopping_steps"),
    renamed("deepspeed_config_path", "deepspeed", kZeroNames),
    renamed("only_save_model", "save_only_model"),
    renamed("dataset_seed", "data_seed"),
    converted("max_epochs", "null:; *: num_train_epochs?=*", "expected a number of epochs"),
    converted("optimizer", "null:; adamw_torch|adamw_torch_fused|adamw_hf|adamw: optim=*", "AdamW is the optimizer of this build"),
    {kRefused, "min_lr", "the schedules end at 0: remove it", "null"},
    {kRefused, "sequence_parallel_size sequence_parallel deepspeed_autotp_size",
     "tensor and sequence parallelism are not implemented: remove it", "null|0|1|false"},
    {kRefused, "zero_hpz_partition_size", "a second level of sharding is strategy: hsdp", "null|0|1"},
    {kRefused, "resume_only_model", "name the checkpoint as model_name_or_path or adapter_name_or_path instead", kOff},
    {kRefused, "eval_use_evalscope", "benchmarks are not run: evaluation reports loss, BLEU-4 and ROUGE", kOff},
    {kMoot, "eval_dataset_args eval_limit eval_generation_config extra_eval_args", "it has a meaning with eval_use_evalscope only", ""},
    {kRefused, "eval_metric", "evaluation reports loss, BLEU-4 and ROUGE: remove it", "null|nlg"},
    {kMoot, "add_version add_output_dir_suffix create_checkpoint_symlink",
     "output_dir is taken as it is, and the newest checkpoint has the highest number", ""},
    {kMoot, "safe_serialization max_shard_size push_hub_strategy additional_saved_files",
     "weights are saved as safetensors; export_size limits the files of qft export", ""},
    {kMoot, "ignore_args_error load_args", "every key is checked, and only this run file and command line are read", ""},
    {kRefused, "load_data_args load_args_from_ckpt_dir load_dataset_config",
     "only this run file and command line are read: name the data in eval_dataset", kOff},
    {kMoot, "ray_exp_name device_groups ds3_gather_for_generation model_layer_cls_name metric_warmup_step fsdp_num",
     "mpirun or srun starts the ranks", ""},
    {kMoot,
     "swanlab_token swanlab_exp_name swanlab_notification_method swanlab_webhook_url swanlab_secret swanlab_sender_email "
     "swanlab_receiver_email swanlab_smtp_server swanlab_smtp_port swanlab_email_language",
     kMetrics, ""},
    {kMoot, "ENV", "set environment variables in the job script: OMP_NUM_THREADS and those of MPI count", ""},

    // Answers and export.
    {kMoot, "stream max_batch_size write_batch_size reranker_use_activation verbose eval_human", "qft generate and chat always stream",
     ""},
    {kMoot, "merge_lora merge_lora_and_save thread_count exist_ok commit_message save_missing_weights merge_device_map",
     "qft export merges the adapter into its base", ""},
    {kMoot, "result_path result_dir save_result", "qft eval writes answers to output_dir", "null"},
    converted("metric", "rouge|null:", "evaluation reports loss, BLEU-4 and ROUGE"),
    {kRefused, "logprobs top_logprobs", "qft eval writes them: predict_logprobs: FILE", "null|false"},
    {kRefused, "structured_outputs_regex", "answers are not forced into a form: remove it", "null"},
    {kRefused, "to_cached_dataset", "qft-pack RUN.yaml --output FILE makes a pack of the data", kOff},
    {kRefused, "to_ollama to_mcore to_hf to_megatron to_peft_format mcore_model mcore_adapter mcore_adapters",
     "the export is a Hugging Face model: convert it with the other tool", "null|false"},
    {kMoot, "test_convert_precision test_convert_dtype hf_output_dir gguf_file", "the export is a Hugging Face model", ""},
    {kMoot,
     "vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_pipeline_parallel_size vllm_data_parallel_size "
     "vllm_enable_expert_parallel vllm_max_num_seqs vllm_max_model_len vllm_disable_custom_all_reduce "
     "vllm_disable_cascade_attn vllm_mm_processor_cache_gb vllm_speculative_config vllm_limit_mm_per_prompt "
     "vllm_enable_prefix_caching vllm_use_async_engine vllm_quantization vllm_reasoning_parser vllm_engine_kwargs "
     "vllm_enable_lora vllm_lora_modules lora_modules sglang_pp_size sglang_dp_size sglang_ep_size sglang_enable_ep_moe "
     "sglang_mem_fraction_static sglang_context_length sglang_disable_cuda_graph sglang_quantization sglang_kv_cache_dtype "
     "sglang_enable_dp_attention sglang_disable_custom_all_reduce sglang_speculative_algorithm sglang_speculative_num_steps "
     "sglang_speculative_eagle_topk sglang_speculative_num_draft_tokens lmdeploy_tp lmdeploy_session_len "
     "lmdeploy_cache_max_entry_count lmdeploy_quant_policy lmdeploy_vision_batch_size tensor_parallel_size "
     "gpu_memory_utilization max_num_seqs enforce_eager limit_mm_per_prompt",
     kEngine, ""},
    {kRefused,
     "train_backend tp pp tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
     "expert_model_parallel_size",
     "Megatron is not part of qft: strategy splits the model", "null|1|transformers"},
};

// Training scripts of transformers, FastChat, alpaca-lora, MedicalGPT, axolotl, Lightning, and launchers.
constexpr Row kOther[] = {
    renamed("base_model pretrained_model_name_or_path", "model_name_or_path"),
    renamed("lora_r", "lora_rank"),
    renamed("tokenizer_name", "tokenizer_name_or_path"),
    renamed("lora_model_dir peft_path", "adapter_name_or_path"),
    converted("use_lora use_peft", "true: finetuning_type=lora; false: finetuning_type=full; null:", "expected true or false"),
    converted("adapter", "lora: finetuning_type=lora; null:", "lora is the adapter that is implemented"),
    converted("dtype",
              "bfloat16|bf16|torch.bfloat16: bf16=true; float16|fp16|torch.float16: fp16=true; "
              "float32|fp32|torch.float32: compute_dtype=float32; auto|AUTO|null:",
              "there are bfloat16, float16 and float32"),
    {kRefused, "load_in_4bit load_in_8bit q_lora use_qlora qlora",
     "quantized base weights are not implemented: remove it to train on bf16 weights", kOff},
    renamed("model_max_length max_seq_length max_seq_len sequence_len block_size", "cutoff_len"),
    renamed("data_path train_file train_file_dir train_data_path train_dataset", "dataset"),
    renamed("eval_data_path validation_file validation_file_dir val_file eval_file", "eval_dataset"),
    renamed("val_set_size", "val_size"),
    {kRefused, "validation_split_percentage", "write it as a fraction: val_size: 0.05", "null|0"},
    renamed("max_train_samples", "max_samples"),
    {kRefused, "dataset_name dataset_config_name", "nothing is downloaded: name a file or a folder in dataset", "null"},
    renamed("micro_batch_size per_device_batch_size", "per_device_train_batch_size"),
    either("batch_size", "per_device_train_batch_size", "global_batch_size",
           "to some tools it is the samples of one rank at a time, to others those of a step on all ranks: write "
           "per_device_train_batch_size or global_batch_size"),
    renamed("accumulate_grad_batches", "gradient_accumulation_steps"),
    renamed("num_epochs epochs", "num_train_epochs"),
    renamed("lr", "learning_rate"),
    renamed("lr_scheduler", "lr_scheduler_type"),
    renamed("gradient_clip_val gradient_clipping max_norm", "max_grad_norm"),
    renamed("sample_packing", "packing"),
    renamed("train_on_inputs", "train_on_prompt"),
    renamed("output_path save_dir", "output_dir"),
    {.kind = ForeignKey::Class::ranks, .names = "num_gpus num_processes"},
    {kMoot, "nproc_per_node nnodes node_rank num_nodes rdzv_backend rdzv_endpoint hostfile", "mpirun or srun places the ranks", ""},
};

constexpr SwiftDefault kSwiftDefaults[] = {
    {"learning_rate", "1e-4 for lora, 1e-5 for full"}, {"lora_alpha", "32"}, {"lora_dropout", "0.05"}, {"weight_decay", "0.1"},
    {"adam_beta2", "0.95"}, {"lr_scheduler_type", "cosine"}, {"per_device_train_batch_size", "1"},
    {"gradient_accumulation_steps", "16 samples in a step"}, {"cutoff_len", "the model's own"}, {"logging_steps", "5"},
};

}  // namespace

std::span<const ForeignRow> foreign_rows(ForeignKey::Tool tool) {
  switch (tool) {
    case ForeignKey::Tool::llama_factory:
      return kLlamaFactory;
    case ForeignKey::Tool::swift:
      return kSwift;
    case ForeignKey::Tool::other:
      return kOther;
  }
  return {};
}

std::span<const SwiftDefault> swift_defaults() { return kSwiftDefaults; }

}  // namespace qft::config
