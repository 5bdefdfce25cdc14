// The tokens at which an answer ends.
#pragma once

#include "qft/model/config.h"
#include "qft/tokenizer/tokenizer.h"

#include <cstdint>
#include <span>
#include <vector>

namespace qft::infer {

/// Those of the chat template, the tokenizer's end token, and those that generation_config.json and config.json name in
/// eos_token_id, as servers take them: rising, each once. `model` is as ModelConfig::load() gives it.
std::vector<std::int32_t> stop_tokens(std::span<const std::int32_t> of_template, const tokenizer::Tokenizer& tokenizer,
                                      const model::ModelConfig& model);

}  // namespace qft::infer
