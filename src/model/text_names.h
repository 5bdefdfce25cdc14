// How a model's files name the decoder. Private to model.
#pragma once

#include "qft/model/config.h"

#include <filesystem>

namespace qft::model {

/// Qwen3.5 has one name for a tensor of the decoder in a model that sees, and another in one of text alone; transformers reads
/// both for either, and writes the first for a text model that it took out of a whole one. Sets text_prefix to what is in `dir`.
void settle_text_prefix(ModelConfig& config, const std::filesystem::path& dir);

}  // namespace qft::model
