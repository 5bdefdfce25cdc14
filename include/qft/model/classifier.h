// Sequence classifiers in files: transformers' ...ForSequenceClassification.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace qft::model {

/// Suffix of transformers' class names for classifiers.
inline constexpr std::string_view kClassifierClass = "ForSequenceClassification";

/// Returns the head that config.json and the adapter describe: a classifier's if one of them is a classifier (the adapter decides
/// first).
Head head_of(const ModelConfig& config, const AdapterConfig& adapter);

/// Throws ConfigError if transformers has no classifier for this architecture, or one with another layout. `stage` for the
/// message: "stage seq_cls".
void require_classifier(const ModelConfig& config, std::string_view stage);

/// Turns the config.json `text` into the classifier's: sets the class, the label names (LABEL_0, ... unless the file already
/// names `labels` labels) and problem_type, which selects the loss (empty: leaves it unchanged). The result does not tie an
/// lm_head, because a classifier has none.
std::string classifier_config(const std::string& text, const ModelConfig& config, std::int64_t labels,
                              std::string_view problem_type);

/// Returns config.json with the padding token of the folder's tokenizer, by which transformers finds a classifier's last token;
/// unchanged if there is none.
std::string with_pad_token(const std::string& model_config, const std::filesystem::path& tokenizer);

}  // namespace qft::model
