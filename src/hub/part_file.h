// A file during its download: its first bytes and their digest, and the lock that the hubs' own clients also take, so that one
// process downloads it.
#pragma once

#include "qft/net/digest.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "api.h"

namespace qft::hub {

class PartFile {
 public:
  /// Opens the existing part and reads it into the digest. Drops a part that is too long, or has no hash to verify it with.
  /// Throws Error.
  PartFile(std::filesystem::path path, const RemoteFile& file);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::uint64_t size() const { return size_; }
  /// Throws Error if the disk is full or fails.
  void append(std::string_view bytes);
  /// Starts again from nothing in a new file: without locks, another process may still write to the old one.
  void clear();
  /// Call when all bytes are here: compares them with the hub's hash and renames the file to `whole`, durably. If the hash
  /// differs, removes the file and returns the found digest. Throws Error if another process replaced the file.
  std::optional<std::string> finish(const std::filesystem::path& whole);

 private:
  void open_file(int flags);
  std::filesystem::path path_;
  const RemoteFile& file_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
  std::optional<net::Digest> digest_;
};

class FileLock {
 public:
  /// Waits for another process that holds the lock while `keep_going` returns true; then throws Error. Calls `waits` once before
  /// waiting.
  FileLock(const std::filesystem::path& path, const std::function<void()>& waits, const std::function<bool()>& keep_going);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False if the file system has no locks: then two processes may do the same work, each in separate files.
  bool held() const { return held_; }
  /// Removes the lock's file if nobody holds it.
  static void remove_free(const std::filesystem::path& path);

 private:
  int fd_ = -1;
  bool held_ = false;
};

}  // namespace qft::hub
