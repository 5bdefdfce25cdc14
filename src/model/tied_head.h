// Whether a model's head and embeddings are one, by its files rather than by config.json alone. Private to model.
#pragma once

#include "qft/model/config.h"

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

namespace qft::model {

/// As transformers decides it for the weights in `dir`: a head that is in the files is skipped as the embeddings' second name
/// only where the two are equal. Else the model is untied, `raw` says so, and there is a note.
void settle_head(ModelConfig& config, const std::filesystem::path& dir);

/// Writes tie_word_embeddings into config.json's object, and where a model is part of a larger one, into its text_config.
void set_tied(nlohmann::ordered_json& config, bool tied);

}  // namespace qft::model
