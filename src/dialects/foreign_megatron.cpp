#include "foreign_table.h"

namespace qft::dialects {
namespace {

constexpr std::string_view kResumes =
    "a new run starts its optimizer and its random numbers anew, a resumed one continues those of its checkpoint";
constexpr std::string_view kFiles =
    "qft reads and writes Hugging Face's files: give such a folder in model, or an adapter in adapters";
constexpr std::string_view kArchitecture = "the model's config.json has this information";
constexpr std::string_view kOverlap = "transfers overlap with compute";
constexpr std::string_view kExperts = "it changes no result: experts have their own kernels";
constexpr std::string_view kLowPrecision = "training in fp8 or fp4 is not implemented: remove the key, and use bf16";

// Megatron-LM's training loop, and ms-swift's `megatron` commands. One of these names makes a run one of Megatron.
constexpr Renamed kMegatronRenamed[] = {
    {{"load", "pretrained_checkpoint"}, "model_name_or_path"},
    {{"save"}, "output_dir"},
    {{"save_interval"}, "save_steps"},
    {{"train_iters"}, "max_steps", {}, Null::sets_nothing},
    {{"lr_warmup_fraction"}, "warmup_ratio", {}, Null::sets_nothing},
    {{"lr_warmup_iters"}, "warmup_steps"},
};

constexpr Converted kMegatronConverted[] = {
    {{"no_save_optim"}, {{{"true"}, {{"save_only_model", "true"}}}, {{"false", "null"}, {}}}, "expected true or false"},
};

constexpr NoEffect kMegatronNoEffect[] = {
    {{"no_save_rng"}, "each checkpoint that can be resumed has the state of its random numbers", kOff},
    {{"no_load_optim", "no_load_rng"}, kResumes, kOff},
    {{"eval_iters"}, "an evaluation reads the whole evaluation set", {"null", "-1"}},
    {{"exit_on_missing_checkpoint", "auto_detect_ckpt_format", "ckpt_format", "dist_ckpt_strictness", "dist_ckpt_format",
      "use_dist_ckpt", "use_persistent_ckpt_worker", "dist_ckpt_save_pre_mcore_014", "dist_ckpt_optim_fully_reshardable",
      "distrib_optim_fully_reshardable_mem_efficient", "bridge_backend"},
     kFiles},
    {{"manual_gc",
      "manual_gc_steps",
      "manual_gc_eval",
      "te_rng_tracker",
      "data_sharding",
      "mlp_padding_free",
      "nccl_comm_warmup",
      "optimizer_cuda_graph",
      "log_throughput",
      "log_timers_to_tensorboard",
      "timing_log_level",
      "log_params_norm",
      "log_num_zeros_in_grad",
      "log_memory_to_tensorboard",
      "log_validation_ppl_to_tensorboard",
      "tensorboard_log_interval",
      "tensorboard_queue_size",
      "data_cache_path",
      "distributed_backend",
      "distributed_timeout_minutes",
      "use_mcore_models",
      "transformer_impl",
      "initial_loss_scale"},
     "it changes no result"},
    {{"wandb_exp_name", "wandb_save_dir", "tensorboard_dir"}, kMetrics, {"null"}},
    {{"lr_wsd_decay_style", "lr_wsd_decay_iters"}, "it only matters with lr_decay_style: WSD"},
    {{"apply_dsa_kernel_fusion", "csa_dense_mode", "dsa_indexer_loss_coeff", "dsa_indexer_use_sparse_loss",
      "mhc_recompute_layer_num", "use_fused_mhc"},
     "it belongs to a kind of model that qft does not have"},
    {{"vit_attn_impl", "vit_gradient_checkpointing_kwargs"}, kText},
    {{"muon_fp32_matmul_prec", "muon_tp_mode"}, "Muon's products are computed for whole matrices"},
    {{"padded_vocab_size", "make_vocab_size_divisible_by", "vocab_file", "merge_file"},
     "the model's own tokenizer and vocabulary are used, without padding"},
};

constexpr Refused kMegatronRefused[] = {
    {{"finetune"}, "to resume a run name its checkpoint in resume_from_checkpoint; remove the key", {"null", "true"}},
    {{"mcore_model", "mcore_adapter", "mcore_adapters", "mcore_ref_model", "mcore_ref_adapter", "to_mcore"}, kFiles, kOff},
    {{"train_samples", "lr_warmup_samples", "lr_decay_samples"},
     "count steps of global_batch_size samples: train_iters, lr_warmup_iters or lr_warmup_fraction",
     {"null", "0"}},
    {{"rampup_batch_size"}, "every step has global_batch_size samples: remove the key", {"null"}},
    {{"lr_decay_iters"}, "the schedule ends with the run: remove the key", {"null"}},
    {{"lr_warmup_init"}, "the learning rate rises from 0: remove the key", {"null", "0", "0.0"}},
    {{"weight_decay_incr_style"}, "weight_decay is constant: remove the key", {"null", "constant"}},
    {{"start_weight_decay", "end_weight_decay"}, "weight_decay is constant: set it, and remove the key", {"null"}},
    {{"split"}, "hold out samples with val_size, or name the data in eval_dataset", {"null"}},
    {{"mock_data", "perform_initialization"}, "qft fine-tunes a model on data: remove the key", kOff},
    {{"sequence_packing_scheduler"}, "rows are filled best-fit: remove the key", {"null"}},
    {{"apply_wd_to_qk_layernorm"}, "weight decay leaves norms out: remove the key", kOff},
    {{"muon_scalar_optimizer"}, "with Muon the other parameters use AdamW: remove the key", {"null", "adam"}},
    {{"muon_split_qkv"}, "q, k and v are separate matrices: remove the key", {"null", "true"}},
    {{"muon_coefficient_type"}, "only quintic is implemented: remove the key", {"null", "quintic"}},
    {{"megatron_extra_kwargs"}, "write its keys into the run file, which names each that qft does not have", {"null"}},
    {{"mtp_num_layers"}, "layers that predict further tokens (MTP) are not trained: remove the key", {"null", "0"}},
    {{"calculate_KL"}, "stage kto computes the KL term: remove the key", {"null", "true"}},
};

constexpr ForeignTables kTablesMegatron = {.renamed = kMegatronRenamed,
                                           .converted = kMegatronConverted,
                                           .combined = {"lr_decay_style", "sgd_momentum", "muon_momentum", "muon_use_nesterov",
                                                        "muon_num_ns_steps", "muon_scale_mode", "muon_extra_scale_factor"},
                                           .no_effect = kMegatronNoEffect,
                                           .refused = kMegatronRefused};

// Names of Megatron Core, which LLaMA-Factory's backend mcore_adapter has too. Beside keys of ms-swift they make a run one of
// Megatron.
constexpr Renamed kCoreRenamed[] = {
    {{"tensor_model_parallel_size"}, "tensor_parallel", {}, Null::sets_nothing},
    {{"moe_aux_loss_coeff"}, "moe_aux_loss_coef"},
    {{"moe_z_loss_coeff"}, "moe_z_loss_coef", {}, Null::sets_nothing},
};

constexpr Converted kCoreConverted[] = {
    {{"recompute_granularity"},
     {{{"full"}, {{"gradient_checkpointing", "true"}}},
      {{"selective", "none", "no"}, {{"gradient_checkpointing", "false"}}},
      {{"null"}, {}}},
     "allowed are full (each layer), selective (qft never keeps attention's scores) and none"},
    {{"use_distributed_optimizer"},
     {{{"true"}, {{"strategy", "zero1", kIfUnset}}}, {{"false", "null"}, {}}},
     "expected true or false"},
    {{"data_parallel_sharding_strategy"},
     {{{"no_shard"}, {{"strategy", "ddp"}}},
      {{"optim"}, {{"strategy", "zero1"}}},
      {{"optim_grads"}, {{"strategy", "zero2"}}},
      {{"optim_grads_params"}, {{"strategy", "zero3"}}},
      {{"null"}, {}}},
     "allowed are no_shard, optim, optim_grads and optim_grads_params"},
    {{"use_megatron_fsdp", "use_custom_fsdp"},
     {{{"true"}, {{"strategy", "zero3", kIfUnset}}}, {{"false", "null"}, {}}},
     "expected true or false"},
    {{"optimizer_cpu_offload"}, {{{"true"}, {{"offload_optimizer", "cpu"}}}, {{"false", "null"}, {}}}, "expected true or false"},
};

constexpr NoEffect kCoreNoEffect[] = {
    {{"sequence_parallel"}, kRowsShared, {"null"}, kFlags, kSequenceDegree},
    {{"recompute_method", "recompute_num_layers", "recompute_modules", "moe_layer_recompute"},
     "qft recomputes one layer at a time, with the same results",
     {"null", "false"}},
    {{"attention_backend"}, kAttention, {"null", "auto"}},
    {{"cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "masked_softmax_fusion", "bias_dropout_fusion",
      "bias_activation_fusion", "bias_gelu_fusion", "bias_swiglu_fusion", "apply_rope_fusion", "gradient_accumulation_fusion",
      "persist_layer_norm", "no_masked_softmax_fusion", "no_bias_dropout_fusion", "no_bias_gelu_fusion", "no_bias_swiglu_fusion",
      "no_rope_fusion", "no_gradient_accumulation_fusion", "no_persist_layer_norm", "linear_decoupled_in_proj"},
     kKernels},
    {{"overlap_param_gather", "overlap_grad_reduce", "overlap_param_gather_with_optimizer_step", "align_param_gather",
      "align_grad_reduce", "tp_comm_overlap", "ddp_bucket_size", "moe_shared_expert_overlap", "overlap_moe_expert_parallel_comm"},
     kOverlap,
     kOff},
    {{"overlap_p2p_comm", "batch_p2p_comm", "microbatch_group_size_per_vp_stage", "account_for_embedding_in_pipeline_split",
      "account_for_loss_in_pipeline_split", "deallocate_pipeline_outputs"},
     "it only matters with pipeline parallelism",
     kOff},
    {{"cp_comm_type", "cp_partition_mode", "hierarchical_context_parallel_sizes"},
     "context ranks exchange the heads of attention, with the same result",
     {"null"}},
    {{"moe_grouped_gemm", "moe_permute_fusion", "moe_token_dispatcher_type", "moe_enable_deepep", "moe_router_dtype",
      "moe_router_fusion", "moe_token_drop_policy", "moe_use_legacy_grouped_gemm"},
     kExperts},
    {{"use_precision_aware_optimizer"}, "masters and optimizer state are fp32, or have the 8 bits that optim asks for", kOff},
    {{"attention_softmax_in_fp32", "accumulate_allreduce_grads_in_fp32", "apply_query_key_layer_scaling", "grad_reduce_in_bf16",
      "grad_reduce_in_fp32"},
     "softmax and sums of gradients are computed in fp32",
     kOff},
    {{"calculate_per_token_loss"}, "the loss is the mean over the label tokens of the global batch", {"null", "true"}},
    {{"fp8_recipe", "fp8_param_gather", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_margin", "fp8_interval",
      "fp8_wgrad", "fp4_recipe", "fp4_param_gather"},
     "it only matters with fp8_format or fp4_format"},
    {{"mtp_loss_scaling_factor", "mtp_decoder_input_detach", "mtp_shared_weights"}, "it only matters with mtp_num_layers"},
    {{"data_parallel_random_init", "use_cpu_initialization", "init_method_std", "language_model_only"},
     "weights are read from the model's files"},
    {{"num_layers",
      "hidden_size",
      "ffn_hidden_size",
      "num_attention_heads",
      "group_query_attention",
      "num_query_groups",
      "kv_channels",
      "max_position_embeddings",
      "position_embedding_type",
      "rotary_base",
      "rotary_percent",
      "normalization",
      "norm_epsilon",
      "layernorm_epsilon",
      "swiglu",
      "disable_bias_linear",
      "add_bias_linear",
      "add_qkv_bias",
      "qk_layernorm",
      "use_rotary_position_embeddings",
      "untie_embeddings_and_output_weights",
      "num_experts",
      "moe_router_topk",
      "moe_router_pre_softmax",
      "moe_ffn_hidden_size",
      "moe_shared_expert_intermediate_size",
      "moe_layer_freq"},
     kArchitecture},
};

constexpr Refused kCoreRefused[] = {
    {{"pipeline_model_parallel_size", "pipeline_parallel_size", "virtual_pipeline_model_parallel_size",
      "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank", "decoder_first_pipeline_num_layers",
      "decoder_last_pipeline_num_layers", "pipeline_model_parallel_layout"},
     kStages,
     {"null", "1"}},
    {{"expert_model_parallel_size", "expert_tensor_parallel_size", "expert_parallel_size", "ep_size", "ep"},
     kExpertRanks,
     {"null", "1"}},
    {{"moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"},
     "experts compute all tokens that the router gives them: remove the key",
     {"null", "false"}},
    {{"moe_router_load_balancing_type"},
     "the load-balancing loss is that of transformers: set moe_aux_loss_coeff, and remove the key",
     {"null", "none", "aux_loss", "seq_aux_loss", "global_aux_loss"}},
    {{"fp8_format", "fp4_format", "fp4"}, kLowPrecision, kOff},
    {{"optimizer_offload_fraction"},
     "the whole optimizer state is offloaded: set it to 1, or remove optimizer_cpu_offload",
     {"null", "1", "1.0"}},
    {{"main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"},
     "gradients, masters and the optimizer's state are fp32: remove the key; optim: adamw_8bit has a smaller state",
     {"null", "fp32"}},
    {{"hidden_dropout", "attention_dropout"}, "the models have no dropout: set it to 0", {"null", "0", "0.0"}},
    {{"deterministic_mode"}, "write deterministic: true (docs/reliability.md)", kOff},
};

constexpr ForeignTables kTablesCore = {
    .renamed = kCoreRenamed, .converted = kCoreConverted, .no_effect = kCoreNoEffect, .refused = kCoreRefused};

}  // namespace

const ForeignTables& megatron_tables() {
  return kTablesMegatron;
}

const ForeignTables& megatron_core_tables() {
  return kTablesCore;
}

}  // namespace qft::dialects
