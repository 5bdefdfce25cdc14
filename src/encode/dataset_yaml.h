// Reads the YAML files that describe datasets in LLaMA-Factory's version 1 (train_dataset).
#pragma once

#include "qft/config/stages.h"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::encode {

/// Splits "data/sft.yaml:identity" into file and name; nullopt if the text before the colon is not a YAML file on this node.
std::optional<std::pair<std::filesystem::path, std::string>> part_of_yaml(const std::string& name);

/// Returns the file's datasets as entries of dataset_info.json: path and source become file_name or hf_hub_url, size
/// num_samples, converter formatting, columns and tags. Without a converter, records have version 1's own form, with pairs if
/// `stage` trains on pairs. Keys unknown to version 1 are kept. Throws ConfigError "file:line: name: key: ..." if something is
/// missing or not implemented.
nlohmann::json read_dataset_yaml(const std::filesystem::path& file, const config::Stage* stage);

}  // namespace qft::encode
