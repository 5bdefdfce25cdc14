// The files of a copy as one stream of bytes: read with their hashes, and written with theirs.
#pragma once

#include "qft/core/hash.h"
#include "qft/inputs/staged.h"

#include <optional>
#include <span>

namespace qft::inputs {

/// Which file of a stream comes next, and how much of it.
class StreamPosition {
 public:
  explicit StreamPosition(const std::vector<StagedFile>& files) : files_(files) {}
  std::size_t file = 0;
  std::uint64_t in_file = 0, total = 0;
  /// Bytes of the current file that are left, at most `most`.
  std::uint64_t next(std::uint64_t most) const;
  bool at_end_of_file() const { return file < files_.size() && in_file == files_[file].bytes; }
  void advance(std::uint64_t bytes) { in_file += bytes, total += bytes; }
  void next_file() { ++file, in_file = 0; }
  bool done() const { return file == files_.size(); }

 private:
  const std::vector<StagedFile>& files_;
};

/// Reads the files of `base` one after the other. Throws nothing: what cannot be read is zeros, and error() says so.
class StreamReader {
 public:
  StreamReader(std::filesystem::path base, const std::vector<StagedFile>& files);
  ~StreamReader();
  void read(std::span<std::byte> bytes);
  std::uint64_t position() const { return at_.total; }
  /// The files with their hashes.
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

/// Writes them into the folder `made`. Throws nothing: after an error it takes bytes and drops them.
class StreamWriter {
 public:
  StreamWriter(std::filesystem::path made, const std::vector<StagedFile>& files);
  ~StreamWriter();
  void write(std::span<const std::byte> bytes);
  /// All bytes came: what is wrong, also where a file's hash is not that of `sent`. The files are
  /// on disk, with the originals' times as far as that can keep them.
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
  std::int64_t unflushed_ = 0;  // bytes of the file that the disk was not told to write yet
  std::string error_;
};

}  // namespace qft::inputs
