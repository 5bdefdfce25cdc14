// Compares a stage with the modules of sentence-transformers in the model's or the adapter's folder. Private to engine.
#pragma once

#include "qft/engine/model_source.h"

#include <cstdint>
#include <filesystem>
#include <string>

namespace qft::engine {

/// In stages embedding and reranker, throws ConfigError for modules that qft does not compute, and for another pooling than the
/// last token's. In other stages, if the stage is not given, throws ConfigError for embedding models and
/// generative rerankers that are not trained. Does nothing without modules.json.
void require_modules(const config::RunConfig& config, const ModelSource& source);

inline constexpr const char* kClassificationKeys = "stage: reranker and reranker_type: classification";

/// Returns the keys for the model that the folder's modules.json describes, for messages: "stage: embedding". Empty if `dir` is
/// empty or has no modules.json.
std::string sentence_keys(const std::filesystem::path& dir);

/// A generative reranker's answers.
struct AnswerTokens {
  std::int32_t positive, negative;
  bool operator==(const AnswerTokens&) const = default;
};
/// Returns the ids of reranker_positive_token and reranker_negative_token: the run file's, else those in the folder's LogitScore
/// module, else of "yes" and "no". Throws ConfigError for a word that is not one token and, unless `trains`, for keys that
/// contradict the module; training warns of these. Logs tokens that agree with the module.
AnswerTokens answer_tokens(const config::RunConfig& config, bool trains);

}  // namespace qft::engine
