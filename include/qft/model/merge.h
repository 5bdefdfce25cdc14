// Reads a model's files as if adapters had been merged into them. Needs no LibTorch.
#pragma once

#include "qft/io/model_files.h"
#include "qft/model/config.h"

#include <filesystem>
#include <vector>

namespace qft::model {

/// Makes `files` return W + scaling B A (or DoRA's formula) for the weights that the adapters change, one adapter after the
/// other, each rounded once to the file's element type. Tensors that an adapter has in full (modules_to_save) replace the
/// model's. Memory: the factors of one tensor at a time for each adapter. Throws Error as read_adapter_config(), and if an
/// adapter does not match this model; ConfigError if an adapter unties the head from the embeddings, or if the files are
/// quantised.
void merge_adapters(io::ModelFiles& files, const ModelConfig& config, const std::vector<std::filesystem::path>& adapters);

}  // namespace qft::model
