// Targets of a download: the layouts of the hubs' own caches, and plain folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "api.h"

namespace qft::hub {

/// Files arrive one by one at whole(); publish() makes them visible under their names.
class Store {
 public:
  virtual ~Store() = default;
  /// True if the file is here with the right bytes, from this download or an earlier one.
  virtual bool has(const RemoteFile& file) const = 0;
  /// Place of a complete file, and of its first bytes during the download: on one file system.
  virtual std::filesystem::path whole(const RemoteFile& file) const = 0;
  std::filesystem::path part(const RemoteFile& file) const { return whole(file).string() + ".incomplete"; }
  /// Lock of the process that downloads the file; the hub's own client takes the same lock.
  virtual std::filesystem::path lock(const RemoteFile& file) const = 0;
  /// Place to read a file for which has() is true.
  virtual std::filesystem::path readable(const RemoteFile& file) const = 0;
  /// Throws Error if a file would replace one that did not come from here. Called before any download.
  virtual void admit(const std::vector<RemoteFile>& files) const = 0;
  /// Gives the files their names once all are here. A new folder appears complete; in an existing one config.json comes last.
  virtual void publish(const Listing& listing, const std::vector<RemoteFile>& files) = 0;
  /// Stores the listing, so that a cache can be checked later; does nothing in a user's folder.
  virtual void keep(const Listing& listing) const = 0;
  /// Folder with the repository's files.
  virtual std::filesystem::path folder(const Listing& listing) const = 0;
};

/// blobs, refs and snapshots, as huggingface_hub stores them.
std::unique_ptr<Store> huggingface_store(const Source& source, const std::filesystem::path& cache, const std::string& commit);
/// snapshots, as modelscope stores them.
std::unique_ptr<Store> modelscope_store(const Source& source, const std::filesystem::path& cache);
/// The files alone, in a user's folder.
std::unique_ptr<Store> folder_store(const Source& source, const std::filesystem::path& folder);

/// Returns a name such as "models--Qwen--Qwen3-8B".
std::string huggingface_folder(const Source& source);
/// Returns a path such as "models/Qwen--Qwen3-8B".
std::filesystem::path modelscope_folder(const Source& source);

/// True if the file's bytes match the hub's description; reads the whole file.
bool is_right(const std::filesystem::path& path, const RemoteFile& file);

}  // namespace qft::hub
