// The YAML files in which LLaMA-Factory's version 1 describes datasets: its train_dataset.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::encode {

/// "data/sft.yaml:identity" as the file and the name in it; nullopt where the text before the colon is no YAML file on this node.
std::optional<std::pair<std::filesystem::path, std::string>> part_of_yaml(const std::string& name);

/// The datasets of the file, as the entries that dataset_info.json would have for them: path and source as file_name or
/// hf_hub_url, size as num_samples, converter as formatting, columns and tags; without one, records in version 1's own form, of
/// pairs where `stage` trains on these. Keys that version 1 does not have stay as they are. Throws ConfigError "file:line: name:
/// key: ..." for what is missing or not implemented.
nlohmann::json read_dataset_yaml(const std::filesystem::path& file, std::string_view stage);

}  // namespace qft::encode
