// What is trained, and how. Each member is the YAML key of the same name; its help text is in visit().
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::config {

struct FinetuningArgs {
  std::string stage = "sft";
  std::string finetuning_type = "lora";
  std::int64_t lora_rank = 8;
  std::int64_t lora_alpha = 0;  // 0 until RunConfig::resolve() makes it 2 * lora_rank
  double lora_dropout = 0.0;
  std::vector<std::string> lora_target = {"all"};
  std::vector<std::string> lora_target_parameters;
  std::vector<std::string> additional_target;
  bool use_rslora = false;
  bool use_dora = false;
  std::optional<double> loraplus_lr_ratio;
  double loraplus_lr_embedding = 1e-6;
  bool pissa_init = false;
  std::int64_t pissa_iter = 16;
  bool pissa_convert = false;
  bool create_new_adapter = false;
  std::int64_t freeze_trainable_layers = 2;
  std::vector<std::string> freeze_trainable_modules = {"all"};
  std::vector<std::string> freeze_extra_modules;
  std::string pref_loss = "sigmoid";
  double pref_beta = 0.1;
  double pref_ftx = 0.0;
  double simpo_gamma = 0.5;
  bool disable_shuffling = false;
  std::optional<std::int64_t> early_stopping_steps;
  bool compute_accuracy = false;

  void visit(const FieldVisitor& field);
  bool operator==(const FinetuningArgs&) const = default;
};

}  // namespace qft::config
