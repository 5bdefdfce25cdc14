// Models and data sets by their names on a hub: found in the hubs' caches, or downloaded into them.
#pragma once

#include "qft/hub/source.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace qft::hub {

/// model: config.json, tokenizer, weights as safetensors, or as .bin where there are none; adapter: the same of an adapter;
/// tokenizer: all but the weights; dataset: files of records.
enum class Needs : std::uint8_t { model, tokenizer, adapter, dataset };

/// Which files of a repository.
struct Wanted {
  Needs needs = Needs::model;
  std::string folder = {};                ///< of the repository, in which they lie; empty: its top
  std::vector<std::string> folders = {};  ///< of a data set, in which they lie; empty: everywhere
  bool everything = false;                ///< all files instead
  std::vector<std::string> include = {};  ///< those that match one of these patterns instead ("*" matches "/" too)
};

struct FetchOptions {
  std::filesystem::path to = {};  ///< a folder for the files alone; empty: the hub's cache
  int threads = 8;                ///< files at a time
  bool show_progress = true;
  std::chrono::seconds patience{600};  ///< that a hub which answered once, and now is busy or out of reach, is waited for
  std::function<bool()> go_on = {};    ///< asked often; false ends the download with an Error. Empty: never
};

struct Fetched {
  std::filesystem::path folder;  ///< of the files
  std::string commit;            ///< empty where the hub tells none
  std::size_t files = 0;
  std::uint64_t bytes = 0;  ///< of these files
  std::uint64_t came = 0;   ///< bytes that came over the network
};

/// Asks the hub and downloads what is missing. Files come whole or not at all, checked against what the hub states; a folder or
/// snapshot is seen once all are there. Two processes fetch each file once. Throws net::NetworkError where the hub cannot be
/// reached or stops, Error for all else.
Fetched fetch(const Source& source, const Wanted& wanted, const FetchOptions& options = {});

/// The files of a local folder that are wanted, as fetch() chooses them of a repository: their paths in it. Throws Error where it
/// has no weights.
std::vector<std::string> files_of(const std::filesystem::path& folder, const Wanted& wanted);

/// The folder in a hub's cache that has all that is wanted, by what qft or huggingface_hub kept of the hub's listing; where
/// neither did, a dataset of which something is there counts, with a warning. Where nothing may be downloaded, so does what
/// locate() takes then. Opens no connection.
std::optional<std::filesystem::path> find_cached(const Source& source, const Wanted& wanted);

/// The folder of `source`: from the cache, there or (without a revision) in the other hub's, else fetch(). Of what other programs
/// put into a cache, without keeping the listing, the hub is asked once whether that is all. Where nothing may be downloaded, or
/// the hub is out of reach, what a cache has is taken with a warning, if all that a run needs is there, but for a tokenizer or
/// what is not known to be missing. Throws Error that says where it was looked for, why it was not downloaded, and how to fetch
/// it elsewhere.
std::filesystem::path locate(const Source& source, const Wanted& wanted, const FetchOptions& options = {});

}  // namespace qft::hub
