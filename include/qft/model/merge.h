// Adapters as a part of the base weights: a model's files, read as if the adapters had been merged into them. Needs no LibTorch.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/config.h"

#include <filesystem>
#include <vector>

namespace qft::model {

/// From here on `files` reads W + scaling B A, or DoRA's, for what the adapters change, one after the other, each rounded once to
/// the element type of the file, and what they have whole (modules_to_save) in place of the model's. Memory: the factors of one
/// tensor at a time for each adapter. Throws Error as read_adapter_config() and where an adapter is not of this model;
/// ConfigError where one parts a tied head from the embeddings, and where the files are quantised.
void merge_adapters(io::ModelFiles& files, const ModelConfig& config, const std::vector<std::filesystem::path>& adapters);

}  // namespace qft::model
