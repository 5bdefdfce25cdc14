// A storage that can fail any single operation, and can simulate a power cut that loses unsynced data.
#pragma once

#include "qft/core/error.h"
#include "qft/io/storage.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace qft::test {

/// error: the operation fails and the program goes on. short_write: the same, but an append leaves half its bytes. crash: all
/// later operations fail, as if the process had died.
enum class Fault { none, error, short_write, crash };

class FaultStorage : public io::Storage {
 public:
  /// `scratch`: an existing directory on the same file system; keeps removed files that may come back.
  explicit FaultStorage(std::filesystem::path scratch) : scratch_(std::move(scratch)) {}

  /// Makes operation number `at` (from 0, counted from now on) fail.
  void arm(std::uint64_t at, Fault fault) {
    at_ = at;
    fault_ = fault;
    operations_ = 0;
    crashed_ = false;
  }
  std::uint64_t operations() const { return operations_; }

  /// Undoes changes that a power cut may lose: file contents after the last sync, names changed since their directory's last
  /// sync.
  void lose_unsynced();

  std::unique_ptr<io::WritableFile> create(const std::filesystem::path& path) override;
  void create_directory(const std::filesystem::path& dir) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove(const std::filesystem::path& path) override;
  std::vector<std::string> list(const std::filesystem::path& dir) override;
  bool exists(const std::filesystem::path& path) override;
  bool is_directory(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& dir) override;

 private:
  friend class FaultFile;
  enum class Change { created, renamed, removed };
  struct Entry {
    Change change;
    std::string a, b;  // created: a; renamed: a to b; removed: a, kept as b
  };
  // Throws if this operation must fail; returns true if it must fail after half of its work.
  bool step(const std::string& what);
  void moved(const std::string& from, const std::string& to);
  void rename_earlier_entries(std::size_t count, const std::string& from, const std::string& to);

  io::Storage& base_ = io::posix_storage();
  std::filesystem::path scratch_;
  std::uint64_t at_ = 0, operations_ = 0, kept_ = 0;
  Fault fault_ = Fault::none;
  bool crashed_ = false;
  std::vector<Entry> unsynced_names_;
  std::map<std::string, std::uint64_t> synced_bytes_;  // of files that hold more than their synced bytes
};

}  // namespace qft::test
