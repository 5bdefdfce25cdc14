#include "qft/core/error.h"
#include "qft/core/hub.h"
#include "qft/encode/dataset_info.h"
#include "qft/inputs/inputs.h"

#include <set>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using config::Purpose;
using config::RunConfig;

/// Searches for the names in one run.
class Search {
 public:
  Search(RunConfig& config, const Locate& locate) : config_(config), locate_(locate), hub_(hub::default_hub(config.model.hub)) {}

  /// Adds `name` if it is not a path.
  void path(const std::string& name, const hub::FileSelection& wanted, const std::string& revision = {}) {
    std::error_code code;
    if (name.empty() || fs::exists(name, code) || !is_hub_name(name)) return;
    add(name, source_of(name, hub_, hub::Kind::model, revision), wanted);
  }

  void datasets(const std::vector<std::string>& names) {
    const bool modelscope = hub_ == hub::Hub::modelscope;
    // Runs twice if dataset_dir itself is on a hub: its dataset_info.json may name more.
    for (bool more = true; more;) {
      more = false;
      const auto all = encode::hub_datasets(config_.data.dataset_dir, names, modelscope, config_.folders);
      for (const auto& dataset : all) {
        if (config_.folders.contains(dataset.key)) continue;
        const hub::Hub hub = dataset.hub.empty() ? hub_ : hub::default_hub(dataset.hub);
        add(dataset.key, source_of(dataset.id, hub, hub::Kind::dataset),
            {.content = hub::Content::dataset, .folders = folders_of(dataset.key, all)});
        more = true;
      }
    }
  }

  std::vector<HubInput> found() && { return std::move(found_); }

 private:
  /// Collects the folders that several entries need from one repository; empty: all of it.
  static std::vector<std::string> folders_of(const std::string& key, const std::vector<encode::HubDataset>& all) {
    std::vector<std::string> folders;
    for (const auto& dataset : all) {
      if (dataset.key != key) continue;
      if (dataset.folder.empty()) return {};
      folders.push_back(dataset.folder);
    }
    return folders;
  }

  void add(const std::string& key, const hub::Source& source, const hub::FileSelection& wanted) {
    if (config_.folders.contains(key)) return;
    const fs::path folder = locate_(source, wanted);
    config_.folders[key] = folder.string();
    found_.push_back({key, source, wanted, folder});
  }

  RunConfig& config_;
  const Locate& locate_;
  hub::Hub hub_;
  std::vector<HubInput> found_;
};

bool reads_data(Purpose purpose) {
  return purpose == Purpose::pack || purpose == Purpose::train || purpose == Purpose::eval || purpose == Purpose::check;
}

}  // namespace

hub::Source source_of(const std::string& name, hub::Hub hub, hub::Kind kind, const std::string& revision) {
  const std::size_t at = name.find('@');
  hub::Source source{hub, kind, name.substr(0, at), at == name.npos ? revision : name.substr(at + 1)};
  hub::check(source);
  return source;
}

fs::path in_cache(const hub::Source& source, const hub::FileSelection& wanted) {
  for (const hub::Hub hub : {source.hub, source.hub == hub::Hub::huggingface ? hub::Hub::modelscope : hub::Hub::huggingface}) {
    hub::Source there = source;
    there.hub = hub;
    if (hub != source.hub && !source.revision.empty()) break;
    if (const auto folder = hub::find_cached(there, wanted)) return *folder;
  }
  fail_config("'{}' is not a path, and no cache has all of its files. {}", source.id,
              fetch_hint(hub::name_of(source.kind), source.id));
}

std::vector<HubInput> find(RunConfig& config, Purpose purpose, const Locate& locate) {
  Search search(config, locate);
  const bool weights = purpose != Purpose::pack && purpose != Purpose::plan;
  if (weights)
    for (const std::string& name : config.model.adapter_name_or_path)
      search.path(name, {.content = hub::Content::adapter, .folder = config.model.adapter_folder});
  if (config.model.model_name_or_path.empty() && !config.model.adapter_name_or_path.empty()) {
    config::take_base_model_from_adapter(config);
    if (config.model.model_name_or_path.empty())
      fail_config("model_name_or_path is not given, and the adapter {} names no base model: give model_name_or_path",
                  config.model.adapter_name_or_path.front());
  }
  search.path(config.model.model_name_or_path, {.content = weights ? hub::Content::model : hub::Content::tokenizer},
              config.model.model_revision);
  search.path(config.model.tokenizer_name_or_path, {.content = hub::Content::tokenizer});
  if (reads_data(purpose)) {
    std::vector<std::string> names;  // together, because two may need parts of one repository
    if (config.data.pack.empty()) names = config.data.dataset;
    if (config.data.eval_pack.empty())
      names.insert(names.end(), config.data.eval_dataset.begin(), config.data.eval_dataset.end());
    if (!names.empty()) search.datasets(names);
  }
  return std::move(search).found();
}

}  // namespace qft::inputs
