// Datasets on a hub: their names, local folders, and the choice of files for a subset or split.
#pragma once

#include "qft/encode/dataset_info.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::encode {

/// Returns the dataset's key in HubFolders.
std::string hub_key(const std::string& id);

/// Returns the hub dataset that an entry of dataset_info.json names, if any. Uses ModelScope if `modelscope` or if the entry
/// names no other hub.
std::optional<HubDataset> hub_of(const nlohmann::json& entry, bool modelscope);

/// Returns the local folder of a hub dataset. Throws ConfigError starting with `where` if it has not been downloaded.
std::string fetched_folder(const std::string& id, const std::string& where, const HubFolders& folders);

/// Returns the id in a dataset_dir "REMOTE:owner/name"; empty if dataset_dir is a local folder.
std::string remote_id(const std::string& dataset_dir);
/// Returns the folder with the files that dataset_dir names.
std::filesystem::path folder_of(const std::string& dataset_dir, const HubFolders& folders);

/// Returns the local copy of a file if one of `folders` has one; else the absolute path `path`.
std::filesystem::path local_copy_of(const std::filesystem::path& path, const HubFolders& folders);

/// A part of a dataset, as named by Hugging Face datasets; empty: the default.
struct HubPart {
  std::string folder = {};  ///< inside the repository ("data_dir")
  std::string subset = {};  ///< a configuration in README.md, else a folder
  std::string split = {};   ///< "train", "validation" ...
};

/// Returns the part's files in `repository`, in order: by the configs in README.md, else by the words in their names. Throws
/// ConfigError, starting with `where`, that lists the available parts.
std::vector<std::filesystem::path> hub_files(const std::filesystem::path& repository, const HubPart& part,
                                             const std::string& where);

}  // namespace qft::encode
