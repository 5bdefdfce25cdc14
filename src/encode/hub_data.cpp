#include "hub_data.h"

#include "qft/core/error.h"
#include "qft/core/hub.h"
#include "qft/io/file.h"

#include <algorithm>
#include <fnmatch.h>

#include "dataset_path.h"
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace qft::encode {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemote = "REMOTE:";

/// Returns the files below a folder as relative paths, sorted; skips names with a leading dot.
std::vector<std::string> all_files(const fs::path& folder) {
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->path().filename().string().starts_with('.'))
      entry.disable_recursion_pending();
    else if (entry->is_regular_file())
      found.push_back(entry->path().lexically_relative(folder).generic_string());
  }
  std::ranges::sort(found);
  return found;
}

/// Parses the YAML between the first two lines "---" of README.md; null if there is none or it cannot be parsed.
YAML::Node front_matter(const fs::path& repository) {
  std::error_code code;
  const fs::path file = repository / "README.md";
  if (!fs::is_regular_file(file, code)) return {};
  const std::string text = io::read_text_file(file);
  const std::size_t end = text.starts_with("---\n") ? text.find("\n---", 3) : text.npos;
  if (end == text.npos) return {};
  try {
    return YAML::Load(text.substr(4, end - 3));
  } catch (const YAML::Exception&) {  // not metadata
    return {};
  }
}

std::vector<std::string> texts(const YAML::Node& node) {
  std::vector<std::string> all;
  if (node && node.IsScalar()) all.push_back(node.as<std::string>());
  if (node && node.IsSequence())
    for (const YAML::Node& item : node)
      if (item.IsScalar()) all.push_back(item.as<std::string>());
  return all;
}

/// Returns the configuration `subset`, else the default one, else the only one.
YAML::Node configuration(const YAML::Node& matter, const std::string& subset) {
  const YAML::Node configs = matter && matter.IsMap() ? matter["configs"] : YAML::Node();
  if (!configs || !configs.IsSequence()) return {};
  for (const YAML::Node& config : configs) {
    const YAML::Node name = config["config_name"], marked = config["default"];
    const bool is_default = configs.size() == 1 || (marked && marked.IsScalar() && marked.as<std::string>() == "true") ||
                            (name && name.IsScalar() && name.as<std::string>() == "default");
    if (subset.empty() ? is_default : name && name.IsScalar() && name.as<std::string>() == subset) return config;
  }
  return {};
}

/// Returns the patterns for a configuration's split; empty if the configuration has none.
std::vector<std::string> patterns_of(const YAML::Node& config, const std::string& split) {
  const YAML::Node files = config["data_files"];
  if (!files) return {};
  std::vector<std::string> patterns;
  if (split == "train") patterns = texts(files);
  if (files.IsSequence())
    for (const YAML::Node& item : files)
      if (item.IsMap() && item["split"] && item["split"].IsScalar() && item["split"].as<std::string>() == split)
        for (std::string& pattern : texts(item["path"])) patterns.push_back(std::move(pattern));
  const YAML::Node dir = config["data_dir"];
  if (dir && dir.IsScalar())
    for (std::string& pattern : patterns) pattern = (fs::path(dir.as<std::string>()) / pattern).generic_string();
  return patterns;
}

bool matches(const std::string& file, std::string pattern) {
  for (std::size_t at; (at = pattern.find("**/")) != pattern.npos;) pattern.erase(at + 1, 2);  // fnmatch's "*" also matches "/"
  if (pattern.starts_with("./")) pattern.erase(0, 2);
  return fnmatch(pattern.c_str(), file.c_str(), 0) == 0;
}

std::string listed(const std::vector<std::string>& files) {
  const std::size_t shown = std::min<std::size_t>(files.size(), 12);
  return fmt::format("{}{}", fmt::join(files.begin(), files.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     files.size() > shown ? " ..." : "");
}

}  // namespace

std::string hub_key(const std::string& id) {
  return "dataset:" + id;
}

std::optional<HubDataset> hub_of(const nlohmann::json& entry, bool modelscope) {
  const auto text = [&](const char* key) {
    const auto found = entry.find(key);
    return found != entry.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::string hf = text("hf_hub_url"), ms = text("ms_hub_url"), folder = text("folder");
  if (!ms.empty() && (modelscope || hf.empty())) return HubDataset{hub_key(ms), "modelscope", ms, folder};
  if (!hf.empty()) return HubDataset{hub_key(hf), "huggingface", hf, folder};
  return std::nullopt;
}

std::string fetched_folder(const std::string& id, const std::string& where, const HubFolders& folders) {
  const auto folder = folders.find(hub_key(id));
  if (folder == folders.end()) fail_config("{}: {}", where, fetch_hint("dataset", id));
  return folder->second;
}

std::string remote_id(const std::string& dataset_dir) {
  if (!dataset_dir.starts_with(kRemote)) return {};
  const std::string id = dataset_dir.substr(kRemote.size());
  std::error_code code;
  return fs::is_directory(id, code) ? "" : id;
}

fs::path folder_of(const std::string& dataset_dir, const HubFolders& folders) {
  if (const std::string id = remote_id(dataset_dir); !id.empty()) return fetched_folder(id, "dataset_dir", folders);
  return dataset_dir.starts_with(kRemote) ? dataset_dir.substr(kRemote.size()) : dataset_dir;
}

fs::path local_copy_of(const fs::path& path, const HubFolders& folders) {
  std::error_code code;
  for (const auto& [original, copy] : folders) {
    const fs::path inside = path.lexically_relative(fs::absolute(original, code).lexically_normal());
    if (!inside.empty() && *inside.begin() != ".." && fs::exists(copy / inside, code)) return copy / inside;
  }
  return path;
}

std::vector<fs::path> hub_files(const fs::path& repository, const HubPart& part, const std::string& where) {
  const std::string split = part.split.empty() ? "train" : part.split;
  const auto names = all_files(repository);
  std::vector<fs::path> files;
  const YAML::Node config = part.folder.empty() ? configuration(front_matter(repository), part.subset) : YAML::Node();
  if (config && config.IsMap()) {
    for (const std::string& pattern : patterns_of(config, split))
      for (const std::string& name : names)
        if (matches(name, pattern) && std::ranges::find(files, repository / name) == files.end())
          files.push_back(repository / name);
    if (!files.empty()) return files;
  }
  fs::path folder = repository / part.folder;
  std::error_code code;
  if (!part.subset.empty() && fs::is_directory(folder / part.subset, code))
    folder /= part.subset;
  else if (!part.subset.empty())
    fail_config("{}: the dataset has no subset '{}': neither README.md nor a folder names it; it has {}", where, part.subset,
                listed(names));
  if (!fs::is_directory(folder, code))
    fail_config("{}: the dataset has no folder '{}'; it has {}", where, part.folder, listed(names));
  if (split == "train") return data_files_in(folder);
  const auto wanted = name_words(folder / split, folder);
  for (const std::string& name : all_files(folder)) {
    const auto words = name_words(folder / name, folder);
    if (std::ranges::includes(words, wanted)) files.push_back(folder / name);
  }
  if (files.empty()) fail_config("{}: the dataset has no files of the split '{}'; it has {}", where, split, listed(names));
  return files;
}

}  // namespace qft::encode
