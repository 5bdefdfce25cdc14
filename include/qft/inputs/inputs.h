// Brings a run's inputs to its nodes: finds folders for names on a hub, and copies files from slow or private storage to each
// node's local disk.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/hub/fetch.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace qft::inputs {

/// A name on a hub in the run file, with its local folder.
struct HubInput {
  std::string key;  ///< key in RunConfig::folders
  hub::Source source;
  hub::FileSelection wanted;
  std::filesystem::path folder;
};

/// Returns the folder for a name in a run, or throws.
using Locate = std::function<std::filesystem::path(const hub::Source&, const hub::FileSelection&)>;
/// Finds the folder in a cache. Throws ConfigError with the command to fetch it if no cache has it. Opens no connection.
std::filesystem::path in_cache(const hub::Source& source, const hub::FileSelection& wanted);

/// Finds the folders of the model, tokenizer, adapters and datasets that `purpose` needs and that have hub names (existing paths
/// are not hub names), and adds them to config.folders. Takes the base model from the adapter if only an adapter is given. Not
/// collective.
std::vector<HubInput> find(config::RunConfig& config, config::Purpose purpose, const Locate& locate);

/// Does find() for all ranks: rank 0 searches, and fetches missing inputs once for all nodes (qft check fetches nothing). Every
/// rank must then see the folders, or find the same commit in its own node's cache. Calls stage() if stage_to is set. Collective;
/// throws the same Error on all ranks, with the node that lacks an input.
void fetch_and_stage(config::RunConfig& config, config::Purpose purpose, comm::Session& session);

/// Copies the run's inputs over MPI to stage_to on every node's local disk, once, from the first node that sees them, and adds
/// the copies to config.folders. Uses inputs that are already on that disk and unchanged copies from earlier runs.
/// fetch_and_stage() calls it. Collective; throws the same Error on all ranks.
void stage(config::RunConfig& config, config::Purpose purpose, comm::Session& session);

/// Copies the pack that this run made at `path` to every node's local disk, like stage(). At least rank 0 must see the pack.
/// Returns this node's path, or `path` without stage_to. Collective; throws the same Error on all ranks.
std::filesystem::path stage_pack(const config::RunConfig& config, const std::filesystem::path& path, comm::Session& session);

/// Parses a name in a run file: "owner/name" or "owner/name@revision".
hub::Source source_of(const std::string& name, hub::Hub hub, hub::Kind kind, const std::string& revision = {});

}  // namespace qft::inputs
