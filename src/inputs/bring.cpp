#include "qft/comm/exchange.h"
#include "qft/core/activity.h"
#include "qft/core/error.h"
#include "qft/core/log.h"
#include "qft/inputs/inputs.h"
#include "qft/job/stop_signal.h"

#include <nlohmann/json.hpp>

namespace qft::inputs {
namespace {

namespace fs = std::filesystem;
using config::Purpose;
using config::RunConfig;
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
