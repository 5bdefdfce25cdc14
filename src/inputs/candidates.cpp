#include "candidates.h"

#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/core/log.h"
#include "qft/encode/dataset_info.h"
#include "qft/io/file.h"

#include <algorithm>
#include <sys/stat.h>

#include "copies.h"

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using config::Purpose;
using config::RunConfig;

/// Returns dataset_info.json and the named datasets' files in that folder.
std::vector<std::string> dataset_files(const RunConfig& c, const fs::path& dir) {
  std::vector<std::string> files;
  if (fs::exists(dir / "dataset_info.json")) files.emplace_back("dataset_info.json");
  std::vector<std::string> names = c.data.dataset;
  names.insert(names.end(), c.data.eval_dataset.begin(), c.data.eval_dataset.end());
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const auto& spec : encode::load_dataset_info(dir, names, c.folders, encode::stage_for_datasets(c)))
    for (const fs::path& file : spec.files) {
      const std::string inside = fs::absolute(file).lexically_relative(fs::absolute(dir)).generic_string();
      if (!inside.empty() && !inside.starts_with("..") && std::ranges::find(files, inside) == files.end())
        files.push_back(inside);
    }
  return files;
}

bool is_entry(const RunConfig& c, const std::string& name) {
  const fs::path file = encode::dataset_info_file(c.data.dataset_dir, c.folders);
  return fs::is_regular_file(file) && io::read_json(file).contains(name);
}

/// Lists the candidate's files on this node, with sizes and times.
StagedItem list_files(const RunConfig& c, const Candidate& candidate, const fs::path& path) {
  StagedItem item;
  item.is_file = fs::is_regular_file(path);
  const fs::path base = item.is_file ? path.parent_path() : path;
  item.source = fs::absolute(path).lexically_normal();
  std::vector<std::string> files;
  if (item.is_file)
    files = {path.filename().string()};
  else if (candidate.kind == Candidate::Kind::dataset_dir)
    files = dataset_files(c, path);
  else
    files = hub::files_of(path, candidate.wanted);
  std::erase_if(files, [](const std::string& file) { return fs::path(file).begin()->string().starts_with(kOwnFiles); });
  item.name = candidate.key.substr(candidate.key.find(':') == std::string::npos ? 0 : candidate.key.find(':') + 1);
  item.name = fs::path(item.name).lexically_normal().filename().string();
  for (const std::string& file : files) {
    struct stat status{};
    require(stat((base / file).c_str(), &status) == 0, "cannot read '{}'", (base / file).string());
    item.files.push_back({.path = file, .bytes = static_cast<std::uint64_t>(status.st_size), .changed = changed_at(status)});
  }
  return item;
}

}  // namespace

std::vector<Candidate> candidates(const RunConfig& c, Purpose purpose) {
  const bool weights = purpose != Purpose::pack;
  std::vector<Candidate> all{{c.model.model_name_or_path, {.content = weights ? hub::Content::model : hub::Content::tokenizer}},
                             {c.model.tokenizer_name_or_path, {.content = hub::Content::tokenizer}}};
  for (const std::string& name : c.model.adapter_name_or_path)
    all.push_back({name, {.content = hub::Content::adapter, .folder = c.model.adapter_folder}});
  const hub::FileSelection everything{.everything = true};
  all.push_back({c.data.pack, everything});
  all.push_back({c.data.eval_pack, everything});
  const bool data = purpose == Purpose::pack || purpose == Purpose::train || purpose == Purpose::eval;
  if (data && c.data.pack.empty() && !(c.data.dataset.empty() && c.data.eval_dataset.empty())) {
    all.push_back({c.data.dataset_dir, everything, Candidate::Kind::dataset_dir});
    for (const auto* names : {&c.data.dataset, &c.data.eval_dataset})
      for (const std::string& name : *names)  // `#` may begin a number of records, or be part of the path
        for (const std::string& path : {name, name.substr(0, name.rfind('#'))})
          all.push_back({path, everything, Candidate::Kind::dataset});
    for (const auto& [key, folder] : c.folders)
      if (key.starts_with("dataset:")) all.push_back({key, everything});
  }
  std::vector<Candidate> once;
  for (Candidate& candidate : all)
    if (!candidate.key.empty() && std::ranges::find(once, candidate.key, &Candidate::key) == once.end())
      once.push_back(std::move(candidate));
  return once;
}

StagedItem item_of(const RunConfig& c, const Candidate& candidate) {
  const fs::path path = c.folder_of(candidate.key);
  StagedItem item;
  try {
    if (!fs::exists(path) || (candidate.kind == Candidate::Kind::dataset && is_entry(c, candidate.key))) return {};
    item = list_files(c, candidate, path);
  } catch (const std::exception& e) {  // not a model: its reader will report the error
    log::debug("'{}' is not staged: {}", path.string(), e.what());
    return {};
  }
  for (const auto& name : {item.source.string(), item.name})
    require(replace_invalid_utf8(name) == name, "cannot stage '{}': its name is not UTF-8; rename it",
            replace_invalid_utf8(name));
  for (const StagedFile& file : item.files)
    require(replace_invalid_utf8(file.path) == file.path, "cannot stage '{}': the name '{}' in it is not UTF-8; rename it",
            item.source.string(), replace_invalid_utf8(file.path));
  return item;
}

}  // namespace qft::inputs
