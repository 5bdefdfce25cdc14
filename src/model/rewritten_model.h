// Helpers for rewriting a model's directory. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/io/storage.h"
#include "qft/model/config.h"

#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Appends a tensor's bytes, or as many zeros if `zero` is set, chunk by chunk.
void copy_tensor(const io::TensorLocation& from, io::ModelWriter& to, bool zero = false);

/// Copies the files other than config.json and the tokenizer's. Applies `edit` to the object of `config` and, if the model is
/// part of a larger one, to its text_config.
void copy_configs(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to,
                  const ModelConfig& config, const std::function<void(nlohmann::ordered_json&)>& edit);

}  // namespace qft::model
