// Durable writes over a small storage interface, so that tests can make every single operation fail. The rule
// everywhere: write under a temporary name, fsync, rename, fsync the parent; then a crash at any moment
// leaves the old version or the new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qft::io {

/// Names that start with this are unfinished: readers ignore them, writers may remove them.
inline constexpr std::string_view kTempPrefix = "tmp-";

/// A new file, written front to back. Errors name the path, the byte and the system's reason.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual void append(const void* data, std::uint64_t bytes) = 0;
  virtual void sync() = 0;
  /// Reports what the system found late (NFS, quotas); the destructor closes silently.
  virtual void close() = 0;
};

/// What a file system does for us. Each operation succeeds or throws Error.
class Storage {
 public:
  virtual ~Storage() = default;
  /// Creates or truncates.
  virtual std::unique_ptr<WritableFile> create(const std::filesystem::path& path) = 0;
  virtual void create_directory(const std::filesystem::path& dir) = 0;
  /// Replaces a file, but no directory that holds anything.
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// A file or an empty directory.
  virtual void remove(const std::filesystem::path& path) = 0;
  /// Names in a directory, sorted.
  virtual std::vector<std::string> list(const std::filesystem::path& dir) = 0;
  virtual bool exists(const std::filesystem::path& path) = 0;
  virtual bool is_directory(const std::filesystem::path& path) = 0;
  /// Makes the creations, renames and removals in `dir` durable.
  virtual void sync_directory(const std::filesystem::path& dir) = 0;
};

/// The machine's file system.
Storage& posix_storage();

/// Removes a file or a directory with all it holds; nothing happens where there is none.
void remove_tree(Storage& storage, const std::filesystem::path& path);

/// Creates or truncates, writes, syncs. Not atomic: for files in a directory that is not committed yet.
void write_file(Storage& storage, const std::filesystem::path& path, std::string_view content);

/// Copies a file's bytes, synced; not atomic either.
void copy_file(Storage& storage, const std::filesystem::path& from, const std::filesystem::path& to);

/// Replaces `path` by `content`: after a crash or an error at any point the old content or the new one is there.
void atomic_write_file(Storage& storage, const std::filesystem::path& path, std::string_view content);

/// fsyncs a file that something else wrote (HDF5); throws Error.
void sync_file(const std::filesystem::path& path);

/// A directory that appears under its final name whole or not at all, and never in place of another. Files are written into
/// temp(); their writers sync them. Not collective: one process begins and commits.
class CommitDir {
 public:
  /// Makes the empty directory temp(), removing what an earlier run left there. `owner`: as in temp_path().
  CommitDir(Storage& storage, std::filesystem::path target, std::string owner = {});
  CommitDir(const CommitDir&) = delete;
  CommitDir& operator=(const CommitDir&) = delete;
  /// Removes temp() unless committed.
  ~CommitDir();

  const std::filesystem::path& temp() const { return temp_; }
  const std::filesystem::path& target() const { return target_; }
  /// parent/tmp-<name>, or parent/tmp-<name>.<owner>, which no other owner writes to.
  static std::filesystem::path temp_path(const std::filesystem::path& target, const std::string& owner = {});

  /// Syncs temp(), gives it its final name, syncs the parent. Throws Error, and leaves all as it is, where something has that
  /// name that is no empty directory.
  void commit();

 private:
  Storage& storage_;
  std::filesystem::path target_, temp_;
  bool committed_ = false;
};

}  // namespace qft::io
