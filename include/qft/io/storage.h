// Durable writes over a small storage interface, which lets tests fail every single operation. The rule everywhere: write under a
// temporary name, fsync, rename, fsync the parent. A crash at any moment then leaves the old version or the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// Prefix of unfinished files and directories: readers ignore them, writers may remove them.
inline constexpr std::string_view kTempPrefix = "tmp-";

/// A new file, written from front to back. Errors name the path, the byte and the system's reason.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* data, std::uint64_t bytes) = 0;
  virtual void sync() = 0;
  /// Closes and reports errors that the system found late (NFS, quotas); the destructor closes silently.
  virtual void close() = 0;
};

/// The file system operations that qft needs. Each operation succeeds or throws Error.
class Storage {
 public:
  virtual ~Storage() = default;
  /// Creates or truncates a file.
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;
  virtual void create_directory(const std::filesystem::path& dir) = 0;
  /// Replaces a file or an empty directory, never a directory with entries.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Removes a file or an empty directory.
  virtual void remove(const std::filesystem::path& path) = 0;
  /// Returns the names in a directory, sorted.
  virtual std::vector<std::string> list(const std::filesystem::path& dir) = 0;
  virtual bool exists(const std::filesystem::path& path) = 0;
  virtual bool is_directory(const std::filesystem::path& path) = 0;
  /// Makes creations, renames and removals in `dir` durable.
  virtual void sync_directory(const std::filesystem::path& dir) = 0;
};

/// The machine's file system.
Storage& posix_storage();

/// Removes a file, or a directory with its contents; does nothing if `path` does not exist.
void remove_tree(Storage& storage, const std::filesystem::path& path);

/// Creates or truncates, writes, syncs. Not atomic: for files in a directory that is not committed yet.
void write_file(Storage& storage, const std::filesystem::path& path, std::string_view content);

/// Copies a file's bytes and syncs. Not atomic either.
void copy_file(Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to);

/// Replaces the content of `path`: after a crash or an error at any point the file has the old content or the new one.
void atomic_write_file(Storage& storage, const std::filesystem::path& path, std::string_view content);

/// Calls fsync on a file that another library wrote (HDF5); throws Error.
void sync_file(const std::filesystem::path& path);

/// A directory that appears under its final name complete or not at all, and never replaces another. Files are written into
/// temp(); their writers sync them. Not collective: one process begins and commits.
class CommitDir {
 public:
  /// Creates temp() empty; removes leftovers of an earlier run there. `owner`: as in temp_path().
  CommitDir(Storage& storage, std::filesystem::path target, std::string owner = {});
  CommitDir(const CommitDir&) = delete;
  CommitDir& operator=(const CommitDir&) = delete;
  /// Removes temp() unless committed.
  ~CommitDir();

  const std::filesystem::path& temp() const { return temp_; }
  const std::filesystem::path& target() const { return target_; }
  /// Returns parent/tmp-<name>, or parent/tmp-<name>.<owner>, to which no other owner writes.
  static std::filesystem::path temp_path(const std::filesystem::path& target, const std::string& owner = {});

  /// Syncs temp(), renames it to its final name, syncs the parent. Throws Error and changes nothing if the final name exists
  /// and is not an empty directory.
  void commit();

 private:
  Storage& storage_;
  std::filesystem::path target_, temp_;
  bool committed_ = false;
};

}  // namespace qft::io
