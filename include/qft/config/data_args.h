// Keys for training and evaluation data. Each member is the YAML key of the same name; visit() has its help text.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace qft::config {

struct DataArgs {
  std::string template_name;  // YAML key: template (a C++ keyword)
  std::string chat_template;  // a Jinja file
  nlohmann::json chat_template_kwargs;
  std::vector<std::string> dataset;
  std::vector<std::string> eval_dataset;
  std::string dataset_dir = "data";
  std::string pack;
  std::string eval_pack;
  std::int64_t cutoff_len = 2048;
  bool train_on_prompt = false;
  bool mask_history = false;
  std::string loss_scale;  // RunConfig::resolve() also sets train_on_prompt and mask_history from its base
  std::string mix_strategy = "concat";
  std::vector<double> interleave_probs;
  std::int64_t preprocessing_batch_size = 1000;
  std::optional<std::int64_t> preprocessing_num_workers;
  std::optional<std::int64_t> max_samples;
  double val_size = 0.0;  // below 1: a fraction of the samples; otherwise a number of samples
  bool eval_on_each_dataset = false;
  std::optional<bool> packing;  // set by RunConfig::resolve()
  bool neat_packing = false;
  std::string tool_format;
  std::string default_system;
  std::string query_prompt;     // stage embedding: before each anchor
  std::string document_prompt;  // stage embedding: before each document
  std::optional<bool> enable_thinking = true;
  bool preserve_thinking = false;
  bool use_curriculum = false;
  std::optional<std::int64_t> curriculum_seed;
  nlohmann::json curriculum;
  std::string on_error = "stop";
  std::int64_t on_error_limit = 1000;

  void visit(const FieldVisitor& field);
  bool operator==(const DataArgs&) const = default;
};

/// The parsed value of loss_scale, in ms-swift's form "last_round+hermes+ignore_empty_think".
struct LossScale {
  std::string base;     // default, last_round or all; empty: not given
  std::string schemes;  // the rest, joined by '+'
};
LossScale parse_loss_scale(const std::string& text);

}  // namespace qft::config
