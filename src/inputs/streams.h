// Reads and writes the files of a copy as one stream of bytes, and hashes them.
#pragma once

#include "qft/core/hash.h"
#include "qft/inputs/staged.h"

#include <optional>
#include <span>

namespace qft::inputs {

/// The position in a stream: the current file and the offset in it.
class StreamPosition {
 public:
  explicit StreamPosition(const std::vector<StagedFile>& files) : files_(files) {}
  std::size_t file = 0;
  std::uint64_t in_file = 0, total = 0;
  /// Returns the bytes left in the current file, at most `most`.
  std::uint64_t next(std::uint64_t most) const;
  bool at_end_of_file() const { return file < files_.size() && in_file == files_[file].bytes; }
  void advance(std::uint64_t bytes) { in_file += bytes, total += bytes; }
  void next_file() { ++file, in_file = 0; }
  bool done() const { return file == files_.size(); }

 private:
  const std::vector<StagedFile>& files_;
};

/// Reads the files in `base` one after the other. Throws nothing: after an error it returns zeros and sets error().
class StreamReader {
 public:
  StreamReader(std::filesystem::path base, const std::vector<StagedFile>& files);
  ~StreamReader();
  void read(std::span<std::byte> bytes);
  std::uint64_t position() const { return at_.total; }
  /// Returns the files with their hashes.
  std::vector<StagedFile> finish();
  const std::string& error() const { return error_; }

 private:
  void close_file();
  std::filesystem::path base_;
  std::vector<StagedFile> files_;
  StreamPosition at_{files_};
  std::optional<Hasher> hasher_;
  int fd_ = -1;
  std::string error_;
};

/// Writes the files into the folder `made`. Throws nothing: after an error it discards bytes.
class StreamWriter {
 public:
  StreamWriter(std::filesystem::path made, const std::vector<StagedFile>& files);
  ~StreamWriter();
  void write(std::span<const std::byte> bytes);
  /// Call it after the last byte. Syncs the files to disk and compares their hashes with `sent`. Returns the error, or "". The
  /// files have the originals' times as far as the disk can store them.
  std::string finish(const std::vector<StagedFile>& sent);

 private:
  void write_some(std::span<const std::byte> bytes);
  void open_file();
  void close_file();
  void sync(const std::filesystem::path& path);
  std::filesystem::path made_;
  std::vector<StagedFile> files_;
  StreamPosition at_{files_};
  std::optional<Hasher> hasher_;
  int fd_ = -1;
  std::int64_t unflushed_ = 0;  // bytes of the file that were not flushed yet
  std::string error_;
};

}  // namespace qft::inputs
