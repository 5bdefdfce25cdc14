// Keys for the stage, the method and the loss. Each member is the YAML key of the same name; visit() has its help text.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

struct FinetuningArgs {
  std::string stage = "sft";
  std::string finetuning_type = "lora";
  std::int64_t lora_rank = 8;
  std::int64_t lora_alpha = 0;  // 0 until RunConfig::resolve() sets 2 * lora_rank
  double lora_dropout = 0.0;
  std::vector<std::string> lora_target = {"all"};
  std::vector<std::string> lora_target_parameters;
  nlohmann::json rank_pattern;   // a mapping
  nlohmann::json alpha_pattern;  // a mapping
  std::vector<std::string> additional_target;
  std::int64_t oft_rank = 0;
  std::int64_t oft_block_size = 32;  // RunConfig::resolve() sets 0 if oft_rank is given
  std::vector<std::string> oft_target = {"all"};
  bool use_cayley_neumann = true;
  std::int64_t num_cayley_neumann_terms = 5;
  bool block_share = false;
  bool use_rslora = false;
  bool use_dora = false;
  std::optional<double> loraplus_lr_ratio;
  bool pissa_init = false;
  std::int64_t pissa_iter = 16;
  bool pissa_convert = false;
  bool create_new_adapter = false;
  std::int64_t freeze_trainable_layers = 2;
  std::vector<std::string> freeze_trainable_modules = {"all"};
  std::vector<std::string> freeze_extra_modules;
  bool use_llama_pro = false;
  bool use_dft_loss = false;
  bool use_asft_loss = false;
  double asft_alpha = 0.1;
  bool use_eaft_loss = false;
  double eaft_alpha = 1.0;
  std::string pref_loss = "sigmoid";
  double pref_beta = 0.1;
  double pref_ftx = 0.0;
  double simpo_gamma = 0.5;
  double rpo_alpha = 0.0;
  double dpo_label_smoothing = 0.0;
  std::optional<double> ld_alpha;
  double pref_bco_weight = 0.0;
  double kto_chosen_weight = 1.0;
  double kto_rejected_weight = 1.0;
  std::optional<std::int64_t> num_labels;
  std::string problem_type;
  std::string embedding_loss = "infonce";
  double infonce_temperature = 0.1;
  bool infonce_use_batch = true;
  std::optional<std::int64_t> infonce_hard_negatives;
  bool infonce_mask_fake_negative = false;
  double infonce_fake_neg_margin = 0.1;
  bool infonce_mask_duplicates = true;
  bool infonce_include_qq = false;
  bool infonce_include_dd = false;
  double contrastive_margin = 0.5;
  nlohmann::json mrl_dims;  // a mapping from widths to weights
  std::string reranker_type = "classification";
  std::string reranker_loss = "pointwise";
  double listwise_temperature = 1.0;
  std::int64_t listwise_min_group_size = 2;
  std::string reranker_positive_token;  // empty: that of the model's 1_LogitScore, else "yes"
  std::string reranker_negative_token;  // likewise, else "no"
  std::int64_t max_positive_samples = 1;
  std::int64_t max_negative_samples = 7;
  std::string ref_model;
  std::vector<std::string> ref_model_adapters;
  bool precompute_ref_log_probs = false;
  bool share_prompts = true;
  bool disable_shuffling = false;
  std::optional<std::int64_t> early_stopping_steps;
  bool compute_accuracy = false;

  /// True if an adapter trains instead of the model's own weights.
  bool trains_adapter() const { return finetuning_type == "lora" || finetuning_type == "oft"; }
  void visit(const FieldVisitor& field);
  /// Returns problem_type, or its default for this number of labels.
  std::string effective_problem_type(std::int64_t labels) const {
    if (!problem_type.empty()) return problem_type;
    return labels == 1 ? "regression" : "single_label_classification";
  }
  bool operator==(const FinetuningArgs&) const = default;
};

}  // namespace qft::config
