#include "qft/hub/fetch.h"

#include "qft/config/start.h"
#include "qft/core/log.h"
#include "qft/core/units.h"
#include "qft/inputs/inputs.h"
#include "qft/inputs/staged.h"

#include <cstdio>
#include <functional>

#include "subcommand.h"
#include <nlohmann/json.hpp>

namespace qft::apps {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

config::CommandSpec spec() {
  config::CommandSpec s;
  s.name = "qft fetch";
  s.summary =
      "downloads models, adapters and datasets from a hub into the cache of the hub's own client: everything that a run file "
      "names, or the given names (owner/name, or owner/name@revision); prints their folders";
  s.run_file = config::CommandSpec::RunFile::optional;
  s.words = "NAME...";
  s.machine_readable = true;
  s.options.add_options()("to", po::value<std::string>(), "folder for the files, instead of the cache")(
      "revision", po::value<std::string>(), "branch, tag or commit [the hub's default branch]")(
      "dataset", "the names are datasets")("no-weights", "only configuration and tokenizer: enough for qft-pack and qft plan")(
      "all", "all files of the repository")("include", po::value<std::vector<std::string>>()->composing(),
                                            "only files that match this pattern (repeatable)")(
      "prune", po::value<double>(), "instead: remove copies in stage_to that nobody has used for this number of days")(
      "at-once", po::value<int>()->default_value(8), "number of simultaneous downloads")(
      "patience", po::value<int>()->default_value(600), "seconds to wait for a busy or unreachable hub after its first answer");
  return s;
}

/// Fetches sources and collects the results.
class Fetcher {
 public:
  explicit Fetcher(const config::CommandLine& line) : line_(line) {
    options_.threads = line.options["at-once"].as<int>();
    if (options_.threads < 1 || options_.threads > 64) fail_config("--at-once {}: 1 to 64", options_.threads);
    options_.max_wait = std::chrono::seconds(std::max(0, line.options["patience"].as<int>()));
    if (line.options.count("to")) options_.to = line.options["to"].as<std::string>();
  }

  std::filesystem::path operator()(const hub::Source& source, const hub::FileSelection& wanted) {
    const hub::Fetched f = hub::fetch(source, wanted, options_);
    log::info("{} {}: {} files, {}, {}", hub::name_of(source.kind), source.id, f.files,
              format_bytes(static_cast<double>(f.bytes)),
              f.downloaded_bytes == 0 ? "already complete"
                                      : fmt::format("{} fetched", format_bytes(static_cast<double>(f.downloaded_bytes))));
    if (!line_.json) std::printf("%s\n", f.folder.c_str());
    results_.push_back({{"hub", hub::name_of(source.hub)},
                        {"kind", hub::name_of(source.kind)},
                        {"id", source.id},
                        {"revision", hub::revision_of(source)},
                        {"commit", f.commit.empty() ? ordered_json() : ordered_json(f.commit)},
                        {"folder", f.folder.string()},
                        {"files", f.files},
                        {"bytes", f.bytes},
                        {"fetched_bytes", f.downloaded_bytes}});
    return f.folder;
  }

  void print_json() const {
    if (line_.json) std::printf("%s\n", results_.dump(2).c_str());
  }

 private:
  const config::CommandLine& line_;
  hub::FetchOptions options_;
  ordered_json results_ = ordered_json::array();
};

hub::FileSelection wanted_of(const config::CommandLine& line) {
  hub::FileSelection wanted;
  if (line.options.count("no-weights")) wanted.content = hub::Content::tokenizer;
  if (line.options.count("dataset")) wanted.content = hub::Content::dataset;
  wanted.everything = line.options.count("all") > 0;
  if (line.options.count("include")) wanted.include = line.options["include"].as<std::vector<std::string>>();
  return wanted;
}

/// Removes old copies on this node's local disk.
int prune(const config::RunConfig& config, double days) {
  if (config.model.stage_to.empty()) fail_config("qft fetch --prune: name the folder with the copies: stage_to=DIR");
  if (!(days >= 0 && days < 1e5)) fail_config("qft fetch --prune {}: expected a number of days", days);
  const auto removed = inputs::prune(config.model.stage_to, std::chrono::seconds(static_cast<std::int64_t>(days * 86400)));
  for (const inputs::RemovedCopy& p : removed)
    log::info("removed '{}' ({})", p.folder.string(), format_bytes(static_cast<double>(p.bytes)));
  if (removed.empty()) log::info("'{}' has no unused copies of that age", config.model.stage_to);
  return kExitOk;
}

int run(const config::CommandLine& line) {
  auto config = config::start(line, config::Purpose::any);
  if (line.options.count("prune")) return prune(config, line.options["prune"].as<double>());
  const bool to = line.options.count("to") > 0;
  if (line.words.empty() && line.run_file.empty())
    fail_config("qft fetch: no name is given: name a model (owner/name) or a run file");
  if (to && (line.words.size() > 1 || !line.run_file.empty())) fail_config("qft fetch: --to takes one name at a time");
  Fetcher fetcher(line);
  const hub::FileSelection wanted = wanted_of(line);
  const std::string revision =
      line.options.count("revision") ? line.options["revision"].as<std::string>() : config.model.model_revision;
  const auto kind = wanted.content == hub::Content::dataset ? hub::Kind::dataset : hub::Kind::model;
  for (const std::string& name : line.words)
    fetcher(inputs::source_of(name, hub::default_hub(config.model.hub), kind, revision), wanted);
  if (!line.run_file.empty() && inputs::find(config, config::Purpose::train, std::ref(fetcher)).empty())
    log::info("{} names nothing on a hub", line.run_file.string());
  fetcher.print_json();
  return kExitOk;
}

}  // namespace

extern const Subcommand kFetch{"fetch", spec, nullptr, run};

}  // namespace qft::apps
