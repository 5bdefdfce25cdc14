// The tokens that end an answer.
#pragma once

#include "qft/model/config.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::infer {

/// Returns the chat template's stop tokens, the tokenizer's end token, and the eos_token_id of generation_config.json and
/// config.json (the same set that servers use): ascending, without duplicates. `model` comes from ModelConfig::load().
std::vector<std::int32_t> stop_tokens(std::span<const std::int32_t> of_template, const tokenizer::Tokenizer& tokenizer,
                                      const model::ModelConfig& model);

}  // namespace qft::infer
