// Detects the decoder's prefix in a model's files. Private to model.
#pragma once

#include "qft/model/config.h"

#include <filesystem>

namespace qft::model {

/// Qwen3.5 names a decoder tensor differently in vision-language and in text-only models. transformers reads both names in
/// either, and writes the first for a text model taken out of a whole one. Embedding models such as Qwen3-Embedding have names
/// without a prefix, because transformers' AutoModel wrote them. Sets text_prefix to the prefix found in `dir`.
void detect_text_prefix(ModelConfig& config, const std::filesystem::path& dir);

}  // namespace qft::model
