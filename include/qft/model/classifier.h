// Classifiers of sequences as files have them: transformers' ...ForSequenceClassification.
#pragma once

#include "qft/model/spec.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace qft::model {

/// How the names of transformers' classes end.
inline constexpr std::string_view kClassifierClass = "ForSequenceClassification";

/// The head that a model's config.json and its adapter have: a classifier's, where one of them is of such, the adapter first.
Head head_of(const ModelConfig& config, const AdapterConfig& adapter);

/// Throws ConfigError where transformers has no classifier of this model's kind, or one that is laid out otherwise.
void require_classifier(const ModelConfig& config);

/// `text`, a config.json, as that of the model's classifier: its class, the names of its labels (LABEL_0, ... but for those that
/// are there already, if they are as many) and problem_type, which says its loss
/// (empty: as it is there). It has no lm_head that could be tied.
std::string classifier_config(const std::string& text, const ModelConfig& config, std::int64_t labels,
                              std::string_view problem_type);

}  // namespace qft::model
