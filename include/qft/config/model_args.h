// Keys for the model to load. Each member is the YAML key of the same name; visit() has its help text.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qft::config {

struct ModelArgs {
  std::string model_name_or_path;
  std::string model_revision;
  std::string hub = "auto";
  std::string tokenizer_name_or_path;
  std::vector<std::string> adapter_name_or_path;
  std::string adapter_folder;
  bool follow_links = false;
  std::string stage_to;
  std::optional<double> stage_limit;  ///< GB
  std::string infer_dtype = "auto";
  std::optional<std::int64_t> quantization_bit;
  std::string quantization_method = "bnb";
  std::string quantization_type = "nf4";
  bool double_quantization = true;
  std::optional<double> moe_aux_loss_coef;
  double moe_z_loss_coef = 0.0;
  std::string rope_scaling;
  bool disable_gradient_checkpointing = false;

  void visit(const FieldVisitor& field);
  bool operator==(const ModelArgs&) const = default;
};

}  // namespace qft::config
