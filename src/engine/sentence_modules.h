// Compares a stage with the modules of sentence-transformers in the model's or the adapter's folder. Private to engine.
#pragma once

#include "qft/engine/model_source.h"

#include <cstdint>

namespace qft::engine {

/// In stages embedding and reranker, throws ConfigError for modules that qft does not compute, for another pooling than the last
/// token's, and, except in training, for keys that contradict a generative reranker's tokens; training warns of these. Logs
/// tokens that the folder sets. Does nothing without modules.json, and in other stages.
void require_modules(const config::RunConfig& config, const ModelSource& source);

/// A generative reranker's answers.
struct AnswerTokens {
  std::int32_t positive, negative;
  bool operator==(const AnswerTokens&) const = default;
};
/// Returns the ids of reranker_positive_token and reranker_negative_token: the run file's, else those in the folder's LogitScore
/// module, else of "yes" and "no". Throws ConfigError for a word that is not one token.
AnswerTokens answer_tokens(const config::RunConfig& config);

}  // namespace qft::engine
