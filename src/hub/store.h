// Where files from a hub go: the layouts of the hubs' own caches, and plain folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api.h"

namespace qft::hub {

/// Files are brought one by one to whole(), and seen under their names once publish() is called.
class Store {
 public:
  virtual ~Store() = default;
  /// Whether the file is here with the right bytes, from now or from earlier.
  virtual bool has(const RemoteFile& file) const = 0;
  /// Where a file lies once it is whole, and where its first bytes lie until then: on one file system.
  virtual std::filesystem::path whole(const RemoteFile& file) const = 0;
  std::filesystem::path part(const RemoteFile& file) const { return whole(file).string() + ".incomplete"; }
  /// Held by the process that brings the file; the hub's own client takes the same.
  virtual std::filesystem::path lock(const RemoteFile& file) const = 0;
  /// Where a file that has() is true of can be read.
  virtual std::filesystem::path readable(const RemoteFile& file) const = 0;
  /// Throws Error where a file would replace one that did not come from here. Before anything is brought.
  virtual void admit(const std::vector<RemoteFile>& files) const = 0;
  /// All files are here: gives them their names. A new folder appears whole; config.json comes last in one that is there.
  virtual void publish(const Listing& listing, const std::vector<RemoteFile>& files) = 0;
  /// Keeps the listing, by which a cache is later known to be whole; in a folder of the user's, nothing.
  virtual void keep(const Listing& listing) const = 0;
  /// The folder of the repository's files.
  virtual std::filesystem::path folder(const Listing& listing) const = 0;
};

/// blobs, refs and snapshots, as huggingface_hub keeps them.
std::unique_ptr<Store> huggingface_store(const Source& source, const std::filesystem::path& cache, const std::string& commit);
/// snapshots, as modelscope keeps them.
std::unique_ptr<Store> modelscope_store(const Source& source, const std::filesystem::path& cache);
/// The files alone, in a folder of the user's.
std::unique_ptr<Store> folder_store(const Source& source, const std::filesystem::path& folder);

/// "models--Qwen--Qwen3-8B"
std::string huggingface_folder(const Source& source);
/// "models/Qwen--Qwen3-8B"
std::filesystem::path modelscope_folder(const Source& source);

/// Whether a file's bytes are those that the hub describes; reads all of it.
bool is_right(const std::filesystem::path& path, const RemoteFile& file);

}  // namespace qft::hub
