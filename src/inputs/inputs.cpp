#include "qft/inputs/inputs.h"

#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/hub.h"
#include "qft/core/log.h"
#include "qft/encode/dataset_info.h"
#include "qft/job/stop_signal.h"

#include <nlohmann/json.hpp>

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

using nlohmann::json;

json to_json(const HubInput& f) {
  return {{"key", f.key},
          {"folder", f.folder.string()},
          {"hub", static_cast<int>(f.source.hub)},
          {"kind", static_cast<int>(f.source.kind)},
          {"id", f.source.id},
          {"revision", f.source.revision},
          {"needs", static_cast<int>(f.wanted.content)},
          {"part", f.wanted.folder},
          {"parts", f.wanted.folders}};
}

HubInput hub_input_of(const json& j) {
  HubInput f;
  f.key = j.at("key").get<std::string>();
  f.folder = j.at("folder").get<std::string>();
  f.source = {static_cast<hub::Hub>(j.at("hub").get<int>()), static_cast<hub::Kind>(j.at("kind").get<int>()),
              j.at("id").get<std::string>(), j.at("revision").get<std::string>()};
  f.wanted.content = static_cast<hub::Content>(j.at("needs").get<int>());
  f.wanted.folder = j.at("part").get<std::string>();
  f.wanted.folders = j.at("parts").get<std::vector<std::string>>();
  return f;
}

/// Runs find() on rank 0 and returns the result as text for the other ranks.
std::string find_as_text(RunConfig config, Purpose purpose) {
  const hub::FetchOptions options{.keep_going = [] { return job::stop_requested() == 0; }};
  const Locate locate = [&](const hub::Source& source, const hub::FileSelection& wanted) {
    return purpose == Purpose::check ? in_cache(source, wanted) : hub::locate(source, wanted, options);
  };
  const std::size_t notes = config.notes.size();
  const std::string given = config.model.model_name_or_path;
  json result = {{"found", json::array()}};
  for (const HubInput& f : find(config, purpose, locate)) {
    log::info("{} {}: '{}'", hub::name_of(f.source.kind), f.source.id, f.folder.string());
    result["found"].push_back(to_json(f));
  }
  if (config.model.model_name_or_path != given) result["model"] = config.model.model_name_or_path;  // taken from the adapter
  result["notes"] = std::vector<std::string>(config.notes.begin() + static_cast<std::ptrdiff_t>(notes), config.notes.end());
  return result.dump();
}

/// Returns this node's folder: rank 0's folder if visible, else the same commit in a cache of this node.
fs::path here(const HubInput& f, const comm::Session& session) {
  std::error_code code;
  if (fs::is_directory(f.folder, code)) return f.folder;
  const auto own = hub::find_cached(f.source, f.wanted);
  if (own && own->filename() == f.folder.filename()) return *own;
  fail(
      "node {} does not see '{}', rank 0's folder of {}: put the cache on storage that all nodes share ({}), run qft fetch on "
      "this node too, or set stage_to to a folder on each node's local disk to copy it over MPI",
      session.hostname(), f.folder.string(), f.source.id, hub::settings_of(f.source.hub).cache_key);
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

void fetch_and_stage(RunConfig& config, Purpose purpose, comm::Session& session) {
  const activity::Phase phase("finding the model and data");
  const std::string text = comm::on_root(session.world(), [&] {
    try {
      return find_as_text(config, purpose);
    } catch (const std::exception& e) {
      if (job::stop_requested() == 0) throw;
      throw job::Stopped(fmt::format("{} ({})", job::kNothingTrained, e.what()));
    }
  });
  const json result = json::parse(text);
  if (result.contains("model")) config.model.model_name_or_path = result["model"].get<std::string>();
  for (const json& note : result.at("notes")) config.notes.push_back(note.get<std::string>());
  std::vector<HubInput> found;
  for (const json& j : result.at("found")) found.push_back(hub_input_of(j));
  const bool stages = !config.model.stage_to.empty();
  if (!found.empty())
    comm::agreed(session.world(), [&] {
      for (const HubInput& f : found) config.folders[f.key] = (stages ? f.folder : here(f, session)).string();
    });
  if (stages) stage(config, purpose == Purpose::check ? Purpose::train : purpose, session);
}

}  // namespace qft::inputs
