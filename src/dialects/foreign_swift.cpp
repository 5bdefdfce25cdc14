#include "foreign_keys.h"
#include "foreign_table.h"

namespace qft::dialects {
namespace {

// Keys of ms-swift, versions 2 to 4.
constexpr Renamed kSwiftRenamed[] = {
    // Model.
    {{"model", "model_id_or_path"}, "model_name_or_path"},
    {{"adapters"}, "adapter_name_or_path"},
    {{"quant_bits"}, "quantization_bit", {{"0", "null"}}},
    {{"quant_method"}, "quantization_method"},
    // Method.
    {{"target_regex", "lora_target_regex"}, "lora_target"},
    {{"lora_dropout_p"}, "lora_dropout"},
    {{"lorap_lr_ratio", "lora_lr_ratio"}, "loraplus_lr_ratio"},
    {{"neftune_alpha"}, "neftune_noise_alpha"},
    {{"enable_dft_loss"}, "use_dft_loss"},
    {{"beta"}, "pref_beta"},
    {{"cpo_alpha"}, "rpo_alpha"},
    {{"label_smoothing"}, "dpo_label_smoothing"},
    {{"desirable_weight"}, "kto_chosen_weight"},
    {{"undesirable_weight"}, "kto_rejected_weight"},
    {{"ref_adapters"}, "ref_model_adapters"},
    // Environment variables of embedding models and rerankers; translate() also reads them from there.
    {{"INFONCE_TEMPERATURE"}, "infonce_temperature"},
    {{"INFONCE_USE_BATCH"}, "infonce_use_batch"},
    {{"INFONCE_HARD_NEGATIVES"}, "infonce_hard_negatives"},
    {{"INFONCE_MASK_FAKE_NEGATIVE"}, "infonce_mask_fake_negative"},
    {{"INFONCE_FAKE_NEG_MARGIN"}, "infonce_fake_neg_margin"},
    {{"INFONCE_INCLUDE_QQ"}, "infonce_include_qq"},
    {{"INFONCE_INCLUDE_DD"}, "infonce_include_dd"},
    {{"LISTWISE_RERANKER_TEMPERATURE"}, "listwise_temperature"},
    {{"LISTWISE_RERANKER_MIN_GROUP_SIZE"}, "listwise_min_group_size"},
    {{"GENERATIVE_RERANKER_POSITIVE_TOKEN"}, "reranker_positive_token"},
    {{"GENERATIVE_RERANKER_NEGATIVE_TOKEN"}, "reranker_negative_token"},
    {{"MAX_POSITIVE_SAMPLES"}, "max_positive_samples"},
    {{"MAX_NEGATIVE_SAMPLES"}, "max_negative_samples"},
    // Data.
    {{"custom_train_dataset_path"}, "dataset"},
    {{"val_dataset", "custom_val_dataset_path"}, "eval_dataset"},
    {{"split_dataset_ratio", "dataset_test_ratio"}, "val_size"},
    {{"preprocess_num_proc"}, "preprocessing_num_workers"},
    {{"template_type"}, "template"},
    // Running.
    {{"deepspeed_config_path"}, "deepspeed", kZeroNames},
    {{"only_save_model"}, "save_only_model"},
    {{"dataset_seed"}, "data_seed"},
};

constexpr Converted kSwiftConverted[] = {
    // Model.
    {{"use_hf"}, {{{"true"}, {{"hub", "huggingface"}}}, {{"false", "null"}, {{"hub", "modelscope"}}}}, "expected true or false"},
    // Method.
    {{"tuner_type", "train_type", "sft_type"},
     {{{"lora"}, {{"finetuning_type", "lora"}}}, {{"full"}, {{"finetuning_type", "full"}}}},
     "lora and full are implemented; for llamapro run qft-ckpt expand, then finetuning_type: freeze with use_llama_pro"},
    {{"tuner_backend"}, {{{"peft", "swift", "null"}, {}}}, "qft has its own implementation: remove the key"},
    {{"rlhf_type"},
     {{{"dpo"}, {{"stage", "dpo"}}},
      {{"kto"}, {{"stage", "kto"}}},
      {{"rm"}, {{"stage", "rm"}}},
      {{"orpo"}, {{"stage", "dpo"}, {"pref_loss", "orpo"}}},
      {{"cpo"}, {{"stage", "dpo"}, {"pref_loss", "cpo"}, {"rpo_alpha", "1", kIfUnset}}},
      {{"simpo"},
       {{"stage", "dpo"},
        {"pref_loss", "simpo"},
        {"pref_beta", "2", kIfUnset},
        {"simpo_gamma", "1", kIfUnset},
        {"rpo_alpha", "1", kIfUnset}}},
      {{"null"}, {}}},
     "dpo, kto, rm, orpo, simpo and cpo are implemented"},
    {{"loss_type"},
     {{{"null", "kto", "cross_entropy", "nll", "loss_scale"}, {}},
      {{"sigmoid"}, {{"pref_loss", "sigmoid", kIfUnset}}},
      {{"hinge", "ipo", "orpo", "simpo", "cpo"}, {{"pref_loss", "*"}}},
      {{"infonce", "cosine_similarity", "contrastive", "online_contrastive"}, {{"embedding_loss", "*"}}},
      {{"pointwise_reranker", "reranker", "generative_reranker", "BinaryCrossEntropyLoss"}, {{"reranker_loss", "pointwise"}}},
      {{"listwise_reranker", "listwise_generative_reranker"}, {{"reranker_loss", "listwise"}}},
      // sentence-transformers' names, with its defaults
      {{"MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"},
       {{"embedding_loss", "infonce"}, {"infonce_temperature", "0.05", kIfUnset}}},
      {{"CosineSimilarityLoss"}, {{"embedding_loss", "cosine_similarity"}}},
      {{"ContrastiveLoss"}, {{"embedding_loss", "contrastive"}}},
      {{"OnlineContrastiveLoss"}, {{"embedding_loss", "online_contrastive"}}}},
     "allowed are sigmoid, hinge, ipo, orpo, simpo and cpo for pairs (stage dpo), infonce, cosine_similarity, contrastive and "
     "online_contrastive for embeddings, pointwise_reranker and listwise_reranker, and cross-entropy"},
    // Data.
    {{"interleave_prob"},
     {{{"null"}, {}}, {{"*"}, {{"interleave_probs", "*"}, {"mix_strategy", "interleave_under", kIfUnset}}}},
     "expected probabilities"},
    {{"truncation_strategy"},
     {{{"right", "truncation_right", "null"}, {}}},
     "qft cuts samples at their end (right); remove longer ones from the data, or raise cutoff_len"},
    {{"agent_template", "tools_prompt"},
     {{{"null"}, {}},
      {{"hermes"}, {{"tool_format", "qwen"}}},
      {{"llama3"}, {{"tool_format", "llama3"}}},
      {{"mistral"}, {{"tool_format", "mistral"}}}},
     "tool_format has qwen (hermes), llama3, mistral and default"},
    // Running.
    {{"early_stop_interval"},
     {{{"null"}, {}}, {{"*"}, {{"early_stopping_steps", "*"}, {"load_best_model_at_end", "true", kIfUnset}}}},
     "expected a number of evaluations"},
};

constexpr Either kSwiftEither[] = {
    // Data.
    {"model_name", "", "",
     "in ms-swift it is the model's name in self-cognition data (qft expects it in the data), in other tools the model: write "
     "model_name_or_path for the model"},
};

constexpr NoEffect kSwiftNoEffect[] = {
    // Model.
    {{"attn_impl"}, kAttention, {"null", "auto"}},
    {{"experts_impl", "enable_npu_model_patch"}, kKernels, {"null", "true"}},
    {{"model_cache_dir"}, kCache, {"null"}},
    {{"local_repo_path", "check_model", "check_model_is_latest"},
     "qft needs no code of the model's repository",
     {"null", "false"}},
    {{"bnb_4bit_comp_dtype", "hqq_axis", "hqq_dynamic_config_path", "quant_n_samples", "quant_batch_size", "quant_seqlen",
      "quant_device_map"},
     "it only matters with quant_bits"},
    // Method.
    {{"lora_dtype"}, "trained weights have fp32 masters", {"null"}},
    {{"lora_ga_batch_size",
      "lora_ga_iters",
      "lora_ga_max_length",
      "lora_ga_direction",
      "lora_ga_scale",
      "lora_ga_stable_gamma",
      "fourier_n_frequency",
      "fourier_scaling",
      "boft_block_size",
      "boft_block_num",
      "boft_n_butterfly_factor",
      "boft_dropout",
      "boft_target_modules",
      "boft_modules_to_save",
      "vera_rank",
      "vera_projection_prng_key",
      "vera_dropout",
      "vera_d_initial",
      "vera_target_modules",
      "vera_modules_to_save",
      "adapter_act",
      "adapter_length",
      "adalora_target_r",
      "adalora_init_r",
      "adalora_tinit",
      "adalora_tfinal",
      "adalora_deltaT",
      "adalora_beta1",
      "adalora_beta2",
      "adalora_orth_reg_weight",
      "llamapro_num_new_blocks",
      "llamapro_num_groups",
      "reft_layer_key",
      "reft_layers",
      "reft_rank",
      "reft_intervention_type",
      "reft_args",
      "ia3_feedforward_modules",
      "ia3_target_modules",
      "ia3_modules_to_save",
      "lisa_step_interval",
      "galore_target_modules",
      "galore_update_proj_gap",
      "galore_optim_per_parameter",
      "galore_with_embedding",
      "galore_quantization",
      "galore_proj_quant",
      "galore_proj_bits",
      "galore_proj_group_size",
      "galore_cos_threshold",
      "galore_gamma_proj",
      "galore_queue_size",
      "galore_config",
      "neftune_backend"},
     kTuner},
    {{"acc_strategy", "acc_steps", "use_logits_to_keep", "gpu_memory_fraction", "test_oom_error"}, "it changes no result"},
    {{"discopop_tau", "ref_model_type", "ref_model_revision"}, "it belongs to a loss that qft does not have"},
    // Data.
    {{"model_author"}, "qft does not change texts: write the names into the data", {"null"}},
    {{"lazy_tokenize", "streaming_buffer_size", "packing_num_proc"}, "data are packed once, and the pack is read on demand"},
    {{"val_dataset_shuffle", "disable_auto_column_mapping", "check_dataset_strategy", "show_dataset_sample"},
     "the order does not matter in evaluation, and qft checks every record"},
    {{"disable_ignore_empty_think", "template_mode"}, "enable_thinking decides about thoughts"},
    {{"norm_bbox", "rescale_image", "vit_gradient_checkpointing", "vit_use_gc", "vit_lr", "aligner_lr"}, kText},
    // Running.
    {{"eval_dataset_args", "eval_limit", "eval_generation_config", "extra_eval_args"}, "it only matters with eval_use_evalscope"},
    {{"add_version", "add_output_dir_suffix", "create_checkpoint_symlink"},
     "qft uses output_dir unchanged, and the newest checkpoint has the highest number"},
    {{"push_hub_strategy", "additional_saved_files"},
     "weights are saved as safetensors; export_size limits the file size of qft export"},
    {{"ignore_args_error"}, "qft checks every key"},
    {{"ray_exp_name", "device_groups", "ds3_gather_for_generation", "model_layer_cls_name", "metric_warmup_step", "fsdp_num"},
     "mpirun or srun starts the ranks"},
    {{"swanlab_token", "swanlab_exp_name", "swanlab_notification_method", "swanlab_webhook_url", "swanlab_secret",
      "swanlab_sender_email", "swanlab_receiver_email", "swanlab_smtp_server", "swanlab_smtp_port", "swanlab_email_language"},
     kMetrics},
    {{"ENV"}, "set environment variables in the job script: OMP_NUM_THREADS and MPI's variables apply"},
    // Answers and export.
    {{"write_batch_size", "reranker_use_activation", "eval_human"}, "it changes no answer"},
    {{"result_path", "result_dir", "save_result"}, "qft eval writes answers to output_dir", {"null"}},
    {{"to_hf", "test_convert_precision", "test_convert_dtype", "hf_output_dir", "gguf_file"}, "qft exports a Hugging Face model"},
};

constexpr Refused kSwiftRefused[] = {
    // Model.
    {{"ckpt_dir"},
     "write adapter_name_or_path (--adapters) for LoRA weights, model_name_or_path (--model) for a whole model",
     {"null"}},
    {{"device_map_config", "device_map_config_path", "device_max_memory", "model_kwargs"},
     "each rank computes on one device: strategy: zero3 splits a model over the ranks",
     {"null", "auto"}},
    {{"init_strategy"}, "qft needs a model with all its weights: remove the key", {"null"}},
    // Method.
    {{"lora_bias_trainable"}, "biases are not trained: remove the key", {"none", "null"}},
    {{"use_swift_lora", "use_loss_scale", "use_flash_ckpt"}, "it is not implemented: remove the key", kOff},
    {{"freeze_parameters", "freeze_parameters_regex", "freeze_parameters_ratio", "trainable_parameters",
      "trainable_parameters_regex", "additional_trainable_parameters"},
     "finetuning_type: freeze trains some layers or modules (docs/methods.md)",
     {"null", "0", "0.0"}},
    {{"enable_channel_loss"}, "the loss is cross-entropy over all samples: remove the key", kOff},
    {{"is_binary_loss_scale"}, "loss_scale sets the weights of tokens: remove the key", {"null", "false"}},
    {{"loss_scale_config_path"}, "loss_scale names the scheme", {"null", "DEFAULT"}},
    {{"loss_weights"}, "a run has one loss: pref_loss", {"null"}},
    {{"center_rewards_coefficient"}, "qft does not centre rewards: remove the key", {"null", "0", "0.0"}},
    {{"f_divergence_type"}, "the divergence is the reverse KL: remove the key", {"null", "reverse_kl"}},
    {{"reference_free"}, "for DPO without a reference use pref_loss: cpo", kOff},
    // Data.
    {{"cached_dataset", "cached_val_dataset"}, "make a pack with qft-pack, and name it in pack or eval_pack", {"null"}},
    {{"custom_dataset_info"}, "write its entries into dataset_info.json in dataset_dir", {"null"}},
    {{"columns"}, "name the columns in dataset_info.json", {"null"}},
    {{"external_plugins", "custom_register_path"}, "qft runs no Python: write the data as JSON lines", {"null"}},
    {{"self_cognition_sample", "train_dataset_sample", "val_dataset_sample", "train_dataset_mix_ratio", "train_dataset_mix_ds"},
     "write the number of samples after the name: dataset: name#500",
     {"null", "0", "0.0", "-1"}},
    {{"streaming_val_size"}, "use val_size to hold out samples", {"null", "0"}},
    {{"packing_length"}, "rows have cutoff_len tokens: set cutoff_len", {"null"}},
    {{"stopping_strategy"}, "set mix_strategy: interleave_over", {"first_exhausted", "null"}},
    {{"response_prefix", "stop_words"}, "the template defines where answers begin and end: remove the key", {"null"}},
    {{"template_backend"}, "qft has its own templates: remove the key", {"swift", "null"}},
    {{"add_non_thinking_prefix"}, "enable_thinking decides about thoughts", {"true", "null"}},
    {{"freeze_vit", "freeze_aligner"}, kTower, kFrozen},
    {{"freeze_llm"}, "models are text only: nothing would be left to train", kOff},
    // Running.
    {{"resume_only_model"}, "name the checkpoint in model_name_or_path or adapter_name_or_path instead", kOff},
    {{"eval_use_evalscope"}, "qft runs no benchmarks: evaluation reports loss, BLEU-4 and ROUGE", kOff},
    {{"eval_metric"},
     "evaluation reports loss, BLEU-4 and ROUGE, and for embeddings and rerankers the metrics of their loss: remove the key",
     {"null", "nlg", "infonce", "paired", "reranker"}},
    // Answers and export.
    {{"structured_outputs_regex"}, "constrained decoding is not implemented: remove the key", {"null"}},
    {{"to_cached_dataset"}, "use qft-pack RUN.yaml --output FILE to make a pack", kOff},
    {{"to_ollama", "to_megatron", "to_peft_format"},
     "qft exports a Hugging Face model: convert it with the other tool",
     {"null", "false"}},
};

constexpr ForeignTables kTablesSwift = {
    .renamed = kSwiftRenamed,
    .converted = kSwiftConverted,
    .either = kSwiftEither,
    .combined = {"dataset_shuffle", "train_dataloader_shuffle", "train_sampler_random", "use_chat_template", "load_args",
                 "load_data_args", "load_args_from_ckpt_dir", "load_dataset_config"},
    .no_effect = kSwiftNoEffect,
    .refused = kSwiftRefused};

constexpr SwiftDefault kSwiftDefaults[] = {
    {"learning_rate", "1e-4 for lora, 1e-5 for full"},
    {"lora_alpha", "32"},
    {"lora_dropout", "0.05"},
    {"weight_decay", "0.1"},
    {"adam_beta2", "0.95"},
    {"lr_scheduler_type", "cosine"},
    {"per_device_train_batch_size", "1"},
    {"gradient_accumulation_steps", "for 16 samples per step"},
    {"cutoff_len", "the model's own"},
    {"logging_steps", "5"},
    {"compute_dtype", "the type of the model's weights"},
    {"truncation_strategy", "delete: longer samples are dropped; here they are cut"},
};

}  // namespace

const ForeignTables& swift_tables() {
  return kTablesSwift;
}

std::span<const SwiftDefault> swift_defaults() {
  return kSwiftDefaults;
}

}  // namespace qft::dialects
