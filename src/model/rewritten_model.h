// What rewrites a model's directory shares. Private to model.
#pragma once

#include "qft/io/model_files.h"
#include "qft/io/storage.h"
#include "qft/model/config.h"

#include <filesystem>
#include <functional>

#include <nlohmann/json.hpp>

namespace qft::model {

/// Appends a tensor's bytes, or, with `zero`, as many zeros, a piece at a time.
void copy_tensor(const io::TensorLocation& from, io::ModelWriter& to, bool zero = false);

/// Copies what is beside config.json and the tokenizer's files, and applies `edit` to the object of `config` and, where a model
/// is part of a larger one, to its text_config.
void copy_configs(io::Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to,
                  const ModelConfig& config, const std::function<void(nlohmann::ordered_json&)>& edit);

}  // namespace qft::model
