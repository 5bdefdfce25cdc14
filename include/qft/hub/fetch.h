// Fetches models and data sets by their names on a hub, from the hubs' caches or by download into them.
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

/// Kind of content. model: config.json, tokenizer, and weights as safetensors, or as .bin if there are none. adapter: the same
/// files for an adapter. tokenizer: everything except the weights. dataset: files with records.
enum class Content : std::uint8_t { model, tokenizer, adapter, dataset };

/// Selects files of a repository.
struct FileSelection {
  Content content = Content::model;
  std::string folder = {};                ///< subfolder of the repository with the files; empty: its top
  std::vector<std::string> folders = {};  ///< subfolders of a data set to fetch; empty: all
  bool everything = false;                ///< fetch all files instead
  std::vector<std::string> include = {};  ///< fetch files that match a pattern instead ("*" matches "/" too)
};

struct FetchOptions {
  std::filesystem::path to = {};  ///< target folder for the files alone; empty: the hub's cache
  int threads = 8;                ///< parallel downloads
  bool show_progress = true;
  std::chrono::seconds max_wait{600};     ///< longest wait for a hub that answered once and now is busy or unreachable
  std::function<bool()> keep_going = {};  ///< polled often; false ends the download with an Error. Empty: never ends it
};

struct Fetched {
  std::filesystem::path folder;  ///< folder with the files
  std::string commit;            ///< empty if the hub does not report one
  std::size_t files = 0;
  std::uint64_t bytes = 0;             ///< total size of these files
  std::uint64_t downloaded_bytes = 0;  ///< bytes received over the network
};

/// Lists the repository on the hub and downloads missing files. Each file is complete or absent, and is checked against the hub's
/// size and hash. A new folder or snapshot becomes visible once all its files are there. Two processes download each file only
/// once. Throws net::NetworkError if the hub is unreachable or stops answering, Error for everything else.
Fetched fetch(const Source& source, const FileSelection& wanted, const FetchOptions& options = {});

/// Returns the paths of the files in a local folder that fetch() would select from a repository. Throws Error if weights are
/// wanted and the folder has none.
std::vector<std::string> files_of(const std::filesystem::path& folder, const FileSelection& wanted);

/// Returns the folder in the hub's cache that has all wanted files, according to the hub's listing that qft or huggingface_hub
/// stored. Without a stored listing, any dataset folder with files counts, with a warning. If downloads are forbidden, returns
/// the same folder that locate() would accept then. Opens no connection.
std::optional<std::filesystem::path> find_cached(const Source& source, const FileSelection& wanted);

/// Returns the folder of `source`: from its hub's cache, or (without a revision) from the other hub's cache, else from fetch().
/// If another program filled the cache without storing the listing, asks the hub once whether files are missing. If downloads are
/// forbidden or the hub is unreachable, uses the cache with a warning if it has everything a run needs, except perhaps a
/// tokenizer and files not known to be missing. Throws Error that says where it searched, why it did not download, and how to
/// fetch the repository elsewhere.
std::filesystem::path locate(const Source& source, const FileSelection& wanted, const FetchOptions& options = {});

}  // namespace qft::hub
