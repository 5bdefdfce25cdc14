// Collects the paths of a run file.
#include "qft/check/paths.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"
#include "qft/encode/dataset_info.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

namespace qft::check {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Use = NeededPath::Use;

/// Returns a path that means the same on all ranks: relative to a folder of config::RunConfig::folders (with its key), or
/// unchanged without a key.
Json portable(const fs::path& path, const config::RunConfig& c) {
  for (const auto& [key, folder] : c.folders)
    if (const fs::path inside = path.lexically_relative(folder); !inside.empty() && *inside.begin() != "..")
      return {key, inside.string()};
  return {"", path.string()};
}

fs::path local(const std::string& key, const fs::path& path, const config::RunConfig& c) {
  if (key.empty()) return path;
  return path == "." ? fs::path(c.folder_of(key)) : c.folder_of(key) / path;
}

/// Returns the data files of a list of datasets as this rank finds them; nullopt if it lacks one.
std::optional<Json> data_files(const char* key, const std::vector<std::string>& names, const config::RunConfig& c) {
  Json files = Json::array();
  try {
    for (const auto& dataset : encode::load_dataset_info(c.data.dataset_dir, names, c.folders, encode::stage_for_datasets(c)))
      for (const auto& file : dataset.files) files.push_back({key, portable(file, c)});
  } catch (const Error&) {  // the run probe reports it, with file and key
    return std::nullopt;
  }
  return files;
}

/// Adds the files that any rank finds, so that all ranks check a file that some lack.
void add_datasets(const char* key, const std::vector<std::string>& names, const config::RunConfig& c, comm::Communicator& world,
                  Json& paths) {
  if (names.empty()) return;
  std::error_code error;
  const fs::path info = encode::dataset_info_file(c.data.dataset_dir, c.folders);
  Json mine{{"info", fs::exists(info, error) ? portable(info, c) : Json()}, {"files", nullptr}};
  if (auto files = data_files(key, names, c)) mine["files"] = std::move(*files);
  Json found = Json::array();
  const auto add = [](Json& list, const Json& path) {
    if (std::find(list.begin(), list.end(), path) == list.end()) list.push_back(path);
  };
  for (const std::string& text : comm::all_gather_strings(world, mine.dump())) {
    const Json theirs = Json::parse(text);
    if (!theirs["info"].is_null()) add(paths, {"dataset_dir", theirs["info"]});
    for (const Json& file : theirs["files"]) add(found, file);
  }
  // If no rank has all files, compare everything in the folder.
  if (found.empty()) add(paths, {"dataset_dir", info.empty() ? Json{"", c.data.dataset_dir} : portable(info.parent_path(), c)});
  for (Json& file : found) paths.push_back(std::move(file));
}

}  // namespace

std::vector<NeededPath> paths_of(const config::RunConfig& c, comm::Communicator& world) {
  Json read = Json::array();
  const auto add = [&](const char* key, const std::string& path) {
    if (!path.empty()) read.push_back({key, portable(path, c)});
  };
  add("model_name_or_path", c.model_path());
  add("tokenizer_name_or_path", c.folder_of(c.model.tokenizer_name_or_path));
  add("chat_template", c.data.chat_template);
  for (const std::string& adapter : c.model.adapter_name_or_path) add("adapter_name_or_path", c.folder_of(adapter));
  add_datasets("dataset", c.data.dataset, c, world, read);
  add_datasets("eval_dataset", c.data.eval_dataset, c, world, read);
  add("pack", c.data.pack);
  add("eval_pack", c.data.eval_pack);
  std::vector<NeededPath> paths;
  for (const Json& path : comm::broadcast_json(world, read))
    paths.push_back({path[0], local(path[1][0], path[1][1].get<std::string>(), c), Use::read});
  if (!c.training.output_dir.empty()) paths.push_back({"output_dir", c.training.output_dir, Use::write});
  return paths;
}

}  // namespace qft::check
