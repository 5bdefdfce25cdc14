// Checks that the model's embedding has a row for each token of the tokenizer.
#pragma once

#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <span>
#include <string>

namespace qft::engine {

/// Names the tokens with ids from `rows` on: "'<tool>' (id 1024), '</tool>' (id 1025) and 3 more". Empty: there are none.
std::string tokens_beyond(const tokenizer::Tokenizer& tokenizer, std::int64_t rows);

/// Throws ConfigError, with the tokens and the remedy, if the tokenizer of `path` (or a template on it) has tokens beyond `rows`.
void require_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& path, const std::string& model,
                        std::int64_t rows);
/// The same check for the tokens of one prompt only.
void require_token_rows(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> prompt, const std::string& model,
                        std::int64_t rows);
/// Warns if the tokenizer has tokens beyond `rows`: prompts must not contain them, and answers never will.
void warn_of_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& model, std::int64_t rows);

}  // namespace qft::engine
