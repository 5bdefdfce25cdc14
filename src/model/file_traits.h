// Determines from a model's files, rather than from config.json alone, whether head and embeddings are tied, and the decoder's
// prefix. Private to model.
#pragma once

#include "qft/model/config.h"

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// Decides like transformers for the weights in `dir`: a head in the files counts as the embeddings' second name only if the two
/// are equal. Otherwise unties the model, corrects `raw` and adds a note.
void detect_tied_head(ModelConfig& config, const std::filesystem::path& dir);

/// Writes tie_word_embeddings into config.json's object and, if the model is part of a larger one, into its text_config.
void set_tied(nlohmann::ordered_json& config, bool tied);

/// Qwen3.5 names a decoder tensor differently in vision-language and in text-only models. transformers reads both names in
/// either, and writes the first for a text model taken out of a whole one. Embedding models such as Qwen3-Embedding have names
/// without a prefix, because transformers' AutoModel wrote them. Sets text_prefix to the prefix found in `dir`.
void detect_text_prefix(ModelConfig& config, const std::filesystem::path& dir);

}  // namespace qft::model
