// Tokens of a tokenizer for which a model has no rows in its embeddings.
#pragma once

#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <span>
#include <string>

namespace qft::engine {

/// "'<tool>' (id 1024), '</tool>' (id 1025) and 3 more": those with ids from `rows` on; empty: there are none.
std::string tokens_beyond(const tokenizer::Tokenizer& tokenizer, std::int64_t rows);

/// Throws ConfigError where a tokenizer (which lies in `path`, or a template on it) has such tokens: names them, and the remedy.
void require_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& path, const std::string& model,
                        std::int64_t rows);
/// The same for a prompt, which may do without them.
void require_token_rows(const tokenizer::Tokenizer& tokenizer, std::span<const std::int32_t> prompt, const std::string& model,
                        std::int64_t rows);
/// Warns where a tokenizer has such tokens: no prompt may have them, and no answer will.
void warn_of_token_rows(const tokenizer::Tokenizer& tokenizer, const std::string& model, std::int64_t rows);

}  // namespace qft::engine
