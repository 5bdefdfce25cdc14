// Datasets on a hub: how they are named, where they lie once they are fetched, and which of their files hold what.
#pragma once

#include "qft/encode/dataset_info.h"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace qft::encode {

/// The key of a dataset in HubFolders.
std::string hub_key(const std::string& id);

/// Where the dataset of an entry of dataset_info.json lies, if that is a hub: ModelScope where `modelscope`, or no other is
/// named.
std::optional<HubDataset> hub_of(const nlohmann::json& entry, bool modelscope);

/// The folder of a dataset of a hub; throws ConfigError, starting with `where`, if it has not been fetched.
std::string fetched(const std::string& id, const std::string& where, const HubFolders& folders);

/// The id of a dataset_dir "REMOTE:owner/name"; empty where it is a folder here.
std::string remote_id(const std::string& dataset_dir);
/// Where the files are that dataset_dir names.
std::filesystem::path folder_of(const std::string& dataset_dir, const HubFolders& folders);

/// The copy of a file of one of `folders`, where there is one; else `path`, which is absolute.
std::filesystem::path copied(const std::filesystem::path& path, const HubFolders& folders);

/// A part of a dataset as Hugging Face datasets names it; empty: the default.
struct HubPart {
  std::string folder = {};  ///< of the repository ("data_dir")
  std::string subset = {};  ///< a configuration of README.md, else a folder
  std::string split = {};   ///< "train", "validation" ...
};

/// Its files in `repository`, in order: as README.md's configs say, else by the words of their names. Throws ConfigError,
/// starting with `where`, that lists what there is.
std::vector<std::filesystem::path> hub_files(const std::filesystem::path& repository, const HubPart& part,
                                             const std::string& where);

}  // namespace qft::encode
