#include "selection.h"

#include "qft/core/data_types.h"
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/member.h"
#include "qft/io/file.h"
#include "qft/io/model_files.h"

#include <algorithm>
#include <array>
#include <fnmatch.h>
#include <optional>
#include <set>
#include <span>

#include <fmt/ranges.h>

namespace qft::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::array kSmall = {".json", ".jinja", ".txt", ".model", ".tiktoken"};  // configuration, tokenizer, templates

bool needs_weights(const FileSelection& wanted) {
  return !wanted.everything && wanted.include.empty() && (wanted.content == Content::model || wanted.content == Content::adapter);
}

std::string name_in(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / name).lexically_normal().generic_string();
}

std::string name_in(const FileSelection& wanted, const std::string& name) {
  return name_in(wanted.folder, name);
}

bool lies_in(const RemoteFile& file, const std::vector<std::string>& folders) {
  return folders.empty() || std::ranges::any_of(folders, [&](const auto& f) { return file.path.starts_with(name_in(f, "")); });
}

bool has_type(const std::string& path, const auto& types) {
  return std::ranges::find(types, fs::path(path).extension().string()) != types.end();
}

bool is_first(const RemoteFile& file, const FileSelection& wanted) {
  if (wanted.everything) return true;
  if (!wanted.include.empty())
    return std::ranges::any_of(wanted.include, [&](const auto& p) { return fnmatch(p.c_str(), file.path.c_str(), 0) == 0; });
  if (fs::path(file.path).filename().string().starts_with('.')) return false;
  if (wanted.content == Content::dataset)
    return (is_data_file(file.path) || file.path.ends_with(".md")) && (lies_in(file, wanted.folders) || file.path == "README.md");
  const std::string folder = name_in(wanted, "");  // "" or "sub/"
  return file.path.starts_with(folder) && file.path.find('/', folder.size()) == file.path.npos && has_type(file.path, kSmall);
}

/// Returns the shards that an index names, as paths in the repository.
std::set<std::string> shards_of(const std::string& index, const std::string& where, const FileSelection& wanted) {
  const auto json = parse_json(index, where);
  require(json.is_object() && json.contains("weight_map") && json["weight_map"].is_object(),
          "{}: not an index of weights: it has no object \"weight_map\"", where);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    require(file.is_string() && is_plain_name(file.get<std::string>()), "{}: puts '{}' into {}: expected a plain file name",
            where, tensor, file.dump());
    shards.insert(name_in(wanted, file.get<std::string>()));
  }
  return shards;
}

std::span<const io::WeightNames> ways_of(const FileSelection& wanted, bool adapter) {
  return adapter || wanted.content == Content::adapter ? std::span<const io::WeightNames>(io::kAdapterWeights)
                                                       : std::span<const io::WeightNames>(io::kModelWeights);
}

/// Returns the names of a repository's weights according to `exists` and `read`; nothing if there are none.
template <class Exists, class Read>
std::optional<std::set<std::string>> weights_in(const FileSelection& wanted, const Exists& exists, const Read& read) {
  for (const bool adapter : {false, true})
    for (const io::WeightNames& way : ways_of(wanted, adapter)) {
      if (exists(name_in(wanted, way.file))) return std::set{name_in(wanted, way.file)};
      if (way.index != nullptr && exists(name_in(wanted, way.index)))
        return shards_of(read(name_in(wanted, way.index)), way.index, wanted);
    }
  return std::nullopt;
}

const RemoteFile* find(const Listing& listing, const std::string& path) {
  const auto found = std::ranges::find(listing.files, path, &RemoteFile::path);
  return found == listing.files.end() ? nullptr : &*found;
}

}  // namespace

std::vector<RemoteFile> select_first(const Listing& listing, const FileSelection& wanted) {
  std::vector<RemoteFile> files;
  std::ranges::copy_if(listing.files, std::back_inserter(files), [&](const RemoteFile& f) { return is_first(f, wanted); });
  return files;
}

std::vector<RemoteFile> select_weights(const Listing& listing, const FileSelection& wanted, const std::string& id,
                                       const std::function<std::string(const RemoteFile&)>& read) {
  if (!needs_weights(wanted)) return {};
  const auto names = weights_in(
      wanted, [&](const std::string& name) { return find(listing, name) != nullptr; },
      [&](const std::string& name) { return read(*find(listing, name)); });
  if (!names) {
    std::vector<std::string> there;
    for (const RemoteFile& file : listing.files)
      if (there.size() < 12) there.push_back(file.path);
    fail("{} has no weights that qft reads ({}{}, or .bin); it has {}{}. Use qft fetch --all to fetch all files", id,
         name_in(wanted, ""), wanted.content == Content::adapter ? io::kAdapterWeights[0].file : io::kModelWeights[0].file,
         fmt::join(there, ", "), listing.files.size() > there.size() ? " ..." : "");
  }
  std::vector<RemoteFile> files;
  for (const std::string& name : *names) {
    const RemoteFile* file = find(listing, name);
    require(file != nullptr, "{}: its index of weights names '{}', which the repository does not have", id, name);
    files.push_back(*file);
  }
  for (const char* name : io::kValueHeadFiles)
    if (const RemoteFile* file = find(listing, name_in(wanted, name))) files.push_back(*file);
  return files;
}

std::string missing_in(const fs::path& folder, const FileSelection& wanted) {
  std::error_code code;
  const auto exists = [&](const std::string& name) { return fs::is_regular_file(folder / name, code); };
  if (!fs::is_directory(folder, code)) return "the folder";
  if (wanted.content == Content::dataset) {
    if (fs::is_empty(folder, code)) return "all files";
    const auto lacks = [&](const std::string& name) { return !fs::is_directory(folder / name, code); };
    const auto missing = std::ranges::find_if(wanted.folders, lacks);
    return missing == wanted.folders.end() ? "" : *missing;
  }
  const char* config = wanted.content == Content::adapter ? "adapter_config.json" : "config.json";
  if (!exists(name_in(wanted, config))) return name_in(wanted, config);
  if (needs_weights(wanted)) {
    const auto names = weights_in(wanted, exists, [&](const std::string& name) { return io::read_text_file(folder / name); });
    if (!names) return "the weights";
    for (const std::string& name : *names)
      if (!exists(name)) return name;
  }
  // Checked last: if only the tokenizer is missing, the cached files may suffice.
  if (wanted.content != Content::adapter && !exists(name_in(wanted, "tokenizer.json"))) return "tokenizer.json";
  return {};
}

}  // namespace qft::hub
