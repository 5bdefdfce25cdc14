// The records of a manifest as JSON, as the file holds them and as ranks send them. Private to checkpoint.
#pragma once

#include "qft/checkpoint/manifest.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace qft::checkpoint {

nlohmann::json to_json(const std::vector<FileRecord>& files);
nlohmann::json to_json(const std::vector<TensorRecord>& tensors);
/// Throw nlohmann::json::exception for missing keys and wrong kinds, Error for an unknown dtype.
std::vector<FileRecord> files_from_json(const nlohmann::json& json);
std::vector<TensorRecord> tensors_from_json(const nlohmann::json& json);

}  // namespace qft::checkpoint
