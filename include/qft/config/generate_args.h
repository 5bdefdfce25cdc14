// Keys for generation, evaluation and export. Each member is the YAML key of the same name; visit() has its help text.
#pragma once

#include "qft/config/field.h"

#include <cstdint>
#include <optional>
#include <string>

namespace qft::config {

struct GenerateArgs {
  std::string prompt;
  std::string system;
  bool do_sample = true;
  double temperature = 0.95;
  double top_p = 0.7;
  std::int64_t top_k = 50;
  std::int64_t max_length = 1024;
  std::int64_t max_new_tokens = 1024;
  double repetition_penalty = 1.0;
  bool skip_special_tokens = true;

  void visit(const FieldVisitor& field);
  bool operator==(const GenerateArgs&) const = default;
};

struct EvalArgs {
  bool predict_with_generate = false;
  std::string predict_logprobs;

  void visit(const FieldVisitor& field);
  bool operator==(const EvalArgs&) const = default;
};

struct ExportArgs {
  std::string export_dir;
  std::int64_t export_size = 5;  // GB (1e9 bytes)
  std::string export_format = "safetensors";
  std::optional<std::int64_t> export_quantization_bit;

  void visit(const FieldVisitor& field);
  bool operator==(const ExportArgs&) const = default;
};

}  // namespace qft::config
