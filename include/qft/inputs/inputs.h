// What a run names, brought to where it is computed: names on a hub to folders, and files of slow or private storage to each
// node's own disk.
#pragma once

#include "qft/comm/session.h"
#include "qft/config/run_config.h"
#include "qft/hub/fetch.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace qft::inputs {

/// A name of a hub that a run gives, and its folder here.
struct Found {
  std::string key;  ///< of RunConfig::folders
  hub::Source source;
  hub::Wanted wanted;
  std::filesystem::path folder;
};

/// Gives the folder of what a run names, or throws.
using Locate = std::function<std::filesystem::path(const hub::Source&, const hub::Wanted&)>;
/// From a cache; elsewhere it says how to fetch it. Opens no connection.
std::filesystem::path in_cache(const hub::Source& source, const hub::Wanted& wanted);

/// Finds the folders of the model, tokenizer, adapters and datasets that `purpose` needs and that are named as on a hub (a path
/// that exists is one), and enters them in config.folders; an adapter alone names its base. Not collective.
std::vector<Found> find(config::RunConfig& config, config::Purpose purpose, const Locate& locate);

/// The same on all ranks: rank 0 finds, and fetches what no cache has (qft check fetches nothing), once for all nodes. Then every
/// rank sees the folders, or finds them in its own node's cache. Collective; throws the same Error on all ranks, which names the
/// nodes that do not. Then stage().
void bring(config::RunConfig& config, config::Purpose purpose, comm::Session& session);

/// Where stage_to is given: copies what the run reads, from the first node that sees it, over MPI to every node's own disk, once,
/// and enters the copies in config.folders. What lies on that disk already, or was copied there by an earlier run and has not
/// changed, stays. bring() calls it. Collective; throws the same Error on all ranks.
void stage(config::RunConfig& config, config::Purpose purpose, comm::Session& session);

/// Where stage_to is given: the pack that this run made at `path`, seen by rank 0 at least, goes to every node's own disk as
/// stage() does it. Returns this node's path; `path` without stage_to. Collective; throws the same Error on all ranks.
std::filesystem::path stage_pack(const config::RunConfig& config, const std::filesystem::path& path, comm::Session& session);

/// A name as written in a run: "owner/name" or "owner/name@revision".
hub::Source source_of(const std::string& name, hub::Hub hub, hub::Kind kind, const std::string& revision = {});

}  // namespace qft::inputs
