#include "qft/config/optimizers.h"

#include "foreign_table.h"

namespace qft::dialects {
namespace {

// Keys that several tools share, and keys of TRL, transformers' training scripts, FastChat, alpaca-lora, MedicalGPT,
// DeepSpeed-Chat, unsloth, axolotl, torchtune, Lightning, Megatron, and launchers.
constexpr ForeignRow kOther[] = {
    // Model.
    renamed("base_model pretrained_model_name_or_path", "model_name_or_path"),
    renamed("tokenizer_name tokenizer_config", "tokenizer_name_or_path"),
    renamed("lora_model_dir lora_weight_path peft_path", "adapter_name_or_path"),
    converted("torch_dtype dtype",
              "bfloat16|bf16|torch.bfloat16: bf16=true; float16|fp16|torch.float16: fp16=true; float32|fp32|torch.float32: "
              "compute_dtype=float32; auto|AUTO|null:",
              "allowed are bfloat16, float16 and float32"),
    converted("mixed_precision precision",
              "bf16|bf16_mixed|bf16-mixed: bf16=true; bf16-true: pure_bf16=true; fp16|16|16-mixed: fp16=true; 32|32-true|fp32: "
              "compute_dtype=float32; false|null:",
              "allowed are bf16, fp16 and 32"),
    {kNoEffect, "model_type tokenizer_type is_llama_derived_model base_model_config config_name",
     "the model's config.json has this information", "null"},
    {kNoEffect,
     "attn_implementation flash_attention sdp_attention xformers_attention eager_attention use_xformers use_flash_attn",
     kAttention, "null|false|auto"},
    {kRefused, "s2_attention", "it changes the model and is not implemented: remove the key", kOff},
    {kRefused, "model_init_kwargs", "the model's config.json defines the model: remove the key", "null"},
    converted("task_type lora_task_type", "causal_lm|CAUSAL_LM|null:; seq_cls|SEQ_CLS: stage=seq_cls",
              "qft trains language models and classifiers (seq_cls): embeddings and rerankers are not implemented"),
    converted("load_in_4bit q_lora use_qlora qlora", "true: quantization_bit=4; null|false|no:", "expected true or false"),
    converted("load_in_8bit", "true: quantization_bit=8; null|false|no:", "expected true or false"),
    renamed("bnb_4bit_quant_type", "quantization_type"),
    renamed("bnb_4bit_use_double_quant use_bnb_nested_quant", "double_quantization"),
    {kNoEffect, "bnb_4bit_compute_dtype bnb_4bit_quant_storage group_size",
     "decoded weights have the type of the computation, and codes are bytes", ""},
    {kRefused, "special_tokens new_special_tokens tokens", kVocabulary, "null"},
    {kNoEffect, "eos_token pad_token", "the template defines the end of answers, and there is no padding", "null"},
    {kNoEffect, "max_model_len", "the model's config.json limits the length of texts", "null"},
    {kRefused, "mrl_dims", "embeddings and rerankers are not implemented", "null"},
    renamed("router_aux_loss_coef", "moe_aux_loss_coef"),
    {kRefused, "device_map", "each rank computes on one device: strategy: zero3 splits a model over the ranks", "null|auto"},
    {kRefused, "checkpointer tokenizer", "write model_name_or_path: the folder of the model and its tokenizer", "null"},

    // Method.
    converted("use_lora use_peft", "true: finetuning_type=lora; false: finetuning_type=full; null:", "expected true or false"),
    converted("adapter", "lora: finetuning_type=lora; null:",
              "only lora is implemented here: to train without an adapter write finetuning_type: full"),
    renamed("lora_r lora_dim r", "lora_rank"),
    renamed("target_modules lora_target_modules", "lora_target", "all-linear=all|ALL=all"),
    converted("lora_target_linear", "true: lora_target=all; false|null:", "expected true or false"),
    renamed("target_parameters", "lora_target_parameters"),
    {kRefused, "peft_layers_to_transform lora_module_name unfrozen_parameters", "name the modules in lora_target", "null"},
    renamed("modules_to_save lora_modules_to_save", "additional_target"),
    renamed("peft_use_rslora", "use_rslora"),
    renamed("peft_use_dora", "use_dora"),
    {kRefused, "lora_fan_in_fan_out", "weights of linear layers have the layout of PyTorch's Linear: remove the key", kOff},
    {kRefused, "bias lora_bias", "biases are not trained: remove the key", "none|null"},
    converted("init_weights init_lora_weights",
              "true|null:; pissa: pissa_init=true pissa_iter=-1; pissa_niter_*: pissa_init=true pissa_iter=*",
              "LoRA starts from PEFT's default (true) or from pissa"),
    {kRefused, "use_ray", "mpirun or srun starts the ranks: remove the key", kOff},
    {kRefused, "lisa_activated_layers", "LISA is not implemented: remove the key", "null|0"},
    {kNoEffect, "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_on_cpu", kKernels, kOff},
    {kNoEffect, "liger_rope liger_rms_norm liger_glu_activation liger_layer_norm liger_fused_linear_cross_entropy use_liger",
     kKernels, kOff},
    renamed("neft_alpha noisy_embedding_alpha", "neftune_noise_alpha"),
    {kRefused, "loss loss_name", "the loss is cross-entropy: remove the key", "null|cross_entropy|nll"},
    converted("rl",
              "dpo: stage=dpo; ipo: stage=dpo pref_loss=ipo; orpo: stage=dpo pref_loss=orpo; simpo: stage=dpo pref_loss=simpo; "
              "kto: stage=kto; null:",
              "dpo, ipo, orpo, simpo and kto are implemented"),
    renamed("dpo_beta orpo_alpha", "pref_beta"),
    renamed("kto_desirable_weight", "kto_chosen_weight"),
    renamed("kto_undesirable_weight", "kto_rejected_weight"),
    {kRefused, "max_prompt_length max_completion_length", "cutoff_len limits prompt and answer together", "null"},
    {kRefused, "sync_ref_model use_weighting", "it is not implemented: remove the key", kOff},
    {kNoEffect, "precompute_ref_batch_size", "the reference model uses micro-batches of per_device_train_batch_size", ""},
    {kNoEffect, "generate_during_eval", "preference evaluations generate no answers", "null|false"},
    {kRefused, "plugins callbacks", "qft runs no Python: remove the key", "null|axolotl.integrations.liger.LigerPlugin"},

    // Data.
    renamed("data_path train_file train_file_dir train_data_path train_dataset dataset_name", "dataset"),
    renamed("eval_data_path validation_file validation_file_dir val_file eval_file", "eval_dataset"),
    {kRefused, "datasets test_datasets",
     "name files or folders in dataset (eval_dataset): qft recognises their format from the records", "null"},
    {kRefused, "dataset_config_name dataset_config", "it selects a part of a dataset on a hub: name its files in dataset",
     "null|default"},
    {kRefused, "dataset_train_split dataset_test_split", "name the files in dataset and eval_dataset", "null|train|test"},
    {kRefused, "text_column prompt_column response_column history_column summary_column dataset_text_field",
     "name the columns in dataset_info.json", "null|text"},
    {kRefused, "dataset_kwargs source_prefix line_by_line", "prepare the data before training: remove the key", kOff},
    renamed("val_set_size", "val_size"),
    {kRefused, "validation_split_percentage", "write it as a fraction: val_size: 0.05", "null|0"},
    renamed("max_train_samples", "max_samples"),
    {kRefused, "max_eval_samples", "write the number of samples after the name: eval_dataset: name#100", "null"},
    renamed("model_max_length max_seq_length max_seq_len sequence_len block_size", "cutoff_len"),
    {kRefused, "max_source_length max_target_length", "cutoff_len limits prompt and answer together", "null"},
    converted("excess_length_strategy",
              "truncate|null:", "qft cuts samples at their end (truncate); remove longer ones from the data"),
    renamed("dataset_num_proc dataset_processes", "preprocessing_num_workers"),
    renamed("template_name prompt_template_name", "template"),
    renamed("chat_template_path chat_template_jinja", "chat_template"),
    renamed("train_on_inputs", "train_on_prompt"),
    converted("completion_only_loss assistant_only_loss", "true|null:; false: train_on_prompt=true", "expected true or false"),
    {kRefused, "roles_to_train train_on_eos", "answers are trained with their end token: remove the key", "null|assistant|turn"},
    renamed("sample_packing packed", "packing"),
    {kRefused, "packing_strategy", "rows are filled best-fit: remove the key", "binpack|bfd|bfd_split|null"},
    {kNoEffect, "strict", "qft checks every record: on_error decides about unreadable ones", "null|true|false"},
    {kNoEffect, "eval_packing eval_sample_packing", "the evaluation loss does not depend on it", "null"},
    {kNoEffect, "padding_free pad_to_multiple_of pad_to_sequence_len", "sequences lie end to end: there is no padding",
     "null|true|false"},
    {kNoEffect, "dataset_prepared_path lazy_preprocess dataset_streaming shuffle_buffer_size",
     "data are packed once, and the pack is read on demand", "null|false"},
    {kNoEffect, "load_from_cache_file download_mode", "hashes of all inputs identify a pack", ""},
    {kNoEffect, "padding_side", "sequences lie end to end: there is no padding", "null|true|false|right"},
    {kNoEffect, "max_pixels", kText, ""},
    converted("shuffle", "true|null:; false: disable_shuffling=true", "expected true or false"),
    {kNoEffect, "shuffle_dataset shuffle_merged_datasets", "each epoch has a new order: use disable_shuffling for source order",
     "null|true"},

    // Running.
    renamed("micro_batch_size per_device_batch_size", "per_device_train_batch_size"),
    either("batch_size", "per_device_train_batch_size", "global_batch_size",
           "in some tools it is a rank's micro-batch, in others the global batch: write per_device_train_batch_size or "
           "global_batch_size"),
    either("train_batch_size", "per_device_train_batch_size", "global_batch_size",
           "in some tools it is a rank's micro-batch, in DeepSpeed the global batch: write per_device_train_batch_size or "
           "global_batch_size"),
    renamed("eval_batch_size", "per_device_eval_batch_size"),
    renamed("accumulate_grad_batches", "gradient_accumulation_steps"),
    renamed("num_epochs epochs", "num_train_epochs"),
    {.kind = ForeignKey::Class::combined, .names = "max_epochs"},
    {kRefused, "max_steps_per_epoch", "use max_steps to limit the run's steps", "null"},
    renamed("lr", "learning_rate"),
    renamed("lr_scheduler", "lr_scheduler_type"),
    renamed("num_warmup_steps lr_warmup_steps warmup_iters", "warmup_steps"),
    {kRefused, "cosine_min_lr_ratio min_learning_rate min_lr",
     "write lr_scheduler_type: cosine_with_min_lr and lr_scheduler_kwargs: {min_lr: 1.0e-6} (or min_lr_rate: 0.1)", "null|0|0.0"},
    renamed("gradient_clip_val gradient_clipping grad_clip clip_grad_norm max_norm", "max_grad_norm", "null=0"),
    converted("use_gradient_checkpointing enable_activation_checkpointing",
              "true|unsloth: gradient_checkpointing=true; false: gradient_checkpointing=false; null:", "expected true or false"),
    {kNoEffect, "gradient_checkpointing_use_reentrant", "qft has one form of recomputation, with the same results",
     "null|true|false"},
    converted("activation_offloading enable_activation_offloading",
              "true: offload_activations=cpu; false|null:", "expected true or false"),
    converted("fsdp_cpu_offload", "true: offload_param=cpu offload_optimizer=cpu; false|null:", "expected true or false"),
    converted("zero_stage",
              "0: strategy=ddp; 1: strategy=zero1; 2: strategy=zero2; 3: strategy=zero3; null:", "allowed are 0, 1, 2 and 3"),
    converted("offload", "true: offload_param=cpu offload_optimizer=cpu; false|null:", "expected true or false"),
    {kRefused, "sequence_parallel_size sequence_parallel deepspeed_autotp_size",
     "tensor and sequence parallelism are not implemented: remove the key", "null|0|1|false"},
    {kRefused, "zero_hpz_partition_size", "for a second level of sharding use strategy: hsdp", "null|0|1"},
    {kRefused,
     "train_backend tp pp tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size "
     "expert_model_parallel_size",
     "qft does not include Megatron: use strategy to split the model", "null|1|transformers"},
    {kRefused, "gpu_memory_limit", "set max_memory (GB per rank)", "null"},
    {kRefused, "val_check_interval check_val_every_n_epoch", "set eval_strategy and eval_steps", "null"},
    converted("optimizer",
              "null:; "
              "adamw_torch|adamw_torch_fused|adamw_hf|adamw|lion_32bit|lion|sgd|adamw_8bit|adamw_bnb_8bit|paged_adamw_8bit|muon|"
              "adafactor|galore_adamw|apollo_adamw: "
              "optim=*",
              config::kOptimizersHere),
    {kRefused, "optimizer_in_bwd", "gradients are summed and clipped before the update: remove the key", kOff},
    {kNoEffect, "verbose compile device accelerator custom_sharded_layers ignore_bias_buffers", "it changes no result",
     "null|true|false|auto|cuda|gpu"},
    {kNoEffect, "num_workers", "one prefetch thread per rank reads the pack", "null"},
    renamed("random_state", "seed"),
    converted("auto_resume_from_checkpoints", "true: resume_from_checkpoint=true; false|null:", "expected true or false"),
    converted("early_stopping_patience", "null:; *: early_stopping_steps=* load_best_model_at_end?=true",
              "expected a number of evaluations"),
    converted("evals_per_epoch", "null:; 1: eval_strategy=epoch",
              "write a fraction of all steps: eval_strategy: steps, eval_steps: 1 / (evals_per_epoch x num_epochs)"),
    converted("saves_per_epoch", "null:; 1: save_strategy=epoch",
              "write a fraction of all steps: save_steps: 1 / (saves_per_epoch x num_epochs)"),
    renamed("log_every_n_steps", "logging_steps"),
    renamed("output_path save_dir default_root_dir", "output_dir"),
    {kNoEffect, "safe_serialization max_shard_size",
     "weights are saved as safetensors; export_size limits the file size of qft export", ""},
    {kNoEffect, "save_adapter_weights_only export_hf_on_finish",
     "adapters and models are saved in the formats of Hugging Face and PEFT", ""},
    {kNoEffect, "eval_table_size eval_max_new_tokens print_loss", "evaluation during training reports the loss", "null|0|false"},
    {kNoEffect,
     "wandb_project wandb_entity wandb_watch wandb_name wandb_run_id wandb_run_name wandb_log_model wandb_mode use_wandb "
     "use_tensorboard metric_logger",
     kMetrics, kOff},
    {kNoEffect, "profiler log_peak_memory_stats", "the log always contains throughput, memory and the seconds of each phase", ""},

    // Answers and export.
    {kNoEffect, "stream max_batch_size", "qft generate and chat always stream and give one answer at a time", ""},
    {kNoEffect, "merge_lora merge_lora_and_save thread_count exist_ok commit_message save_missing_weights merge_device_map",
     "qft export merges the adapter into its base", ""},
    converted("metric", "rouge|null:", "evaluation reports loss, BLEU-4 and ROUGE"),
    {kRefused, "logprobs top_logprobs", "qft eval writes log-probabilities: set predict_logprobs: FILE", "null|false"},
    {kNoEffect,
     "vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_pipeline_parallel_size vllm_data_parallel_size "
     "vllm_enable_expert_parallel vllm_max_num_seqs vllm_max_model_len vllm_disable_custom_all_reduce vllm_disable_cascade_attn "
     "vllm_mm_processor_cache_gb vllm_speculative_config vllm_limit_mm_per_prompt vllm_enable_prefix_caching "
     "vllm_use_async_engine vllm_quantization vllm_reasoning_parser vllm_engine_kwargs vllm_enable_lora vllm_lora_modules "
     "lora_modules sglang_pp_size sglang_dp_size sglang_ep_size sglang_enable_ep_moe sglang_mem_fraction_static "
     "sglang_context_length sglang_disable_cuda_graph sglang_quantization sglang_kv_cache_dtype sglang_enable_dp_attention "
     "sglang_disable_custom_all_reduce sglang_speculative_algorithm sglang_speculative_num_steps sglang_speculative_eagle_topk "
     "sglang_speculative_num_draft_tokens lmdeploy_tp lmdeploy_session_len lmdeploy_cache_max_entry_count lmdeploy_quant_policy "
     "lmdeploy_vision_batch_size tensor_parallel_size gpu_memory_utilization max_num_seqs enforce_eager limit_mm_per_prompt",
     kEngine, ""},

    // Launching.
    {.kind = ForeignKey::Class::ranks, .names = "num_gpus num_processes"},
    {kNoEffect,
     "nproc_per_node nnodes node_rank num_nodes devices rdzv_backend rdzv_endpoint rdzv_id max_restarts standalone hostfile "
     "include num_machines machine_rank main_process_ip main_process_port multi_gpu",
     "mpirun or srun places the ranks", ""},
    {kNoEffect, "use_mcore use_distributed_optimizer overlap_param_gather overlap_grad_reduce use_packed_sequences",
     "qft does not include Megatron: strategy splits the model, and transfers overlap with compute", kOff},
};

}  // namespace

std::span<const ForeignRow> other_rows() {
  return kOther;
}

}  // namespace qft::dialects
