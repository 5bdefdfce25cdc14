// Reading files by position: exact reads with errors that say what was wanted, and read-only mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace qft::io {

/// A file open for reading. Movable; reads are thread-safe (pread moves no file position).
class File {
 public:
  /// Throws Error naming the path and the system's reason; a directory is refused.
  static File open_read(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Reads exactly `bytes` bytes at `offset` into `dst`; throws Error with path, offset, wanted and got.
  void pread(std::uint64_t offset, void* dst, std::uint64_t bytes) const;
  /// Its first kLeadBytes, or all where it has fewer: what tells the kind of a file.
  std::string lead() const;
  /// Size in bytes when it was opened.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  File(std::filesystem::path path, int fd, std::uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// A read-only mapping of a byte range. It outlives the File. If another process truncates the file
/// meanwhile, a touch of the lost pages is a SIGBUS: use pread where files may change.
class Mapping {
 public:
  Mapping() = default;
  /// Throws Error where the range does not lie in the file or the system refuses.
  Mapping(const File& file, std::uint64_t offset, std::uint64_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Tells the system that the range will be read soon, in order.
  void will_need() const;
  /// Lets the system take back the memory of `bytes` bytes from `offset` on; they are read again when touched.
  void release(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void* base_ = nullptr;  // page-aligned, at or before data_
  std::uint64_t mapped_ = 0;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// The whole of a text file (configuration, index); throws Error for a missing file, one above `limit` bytes,
/// and one that holds no text (describe_no_text() of core/file_kind.h).
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit = 256u << 20);

/// A JSON file, checked as parse_json() of core/json.h does; throws Error naming the path.
nlohmann::json read_json(const std::filesystem::path& path);

/// Throws Error unless `path` exists and is a directory; `what` says in the message what it was meant to be.
void require_directory(const std::filesystem::path& path, const std::string& what);

/// Throws ConfigError unless nothing has the name `path`, or an empty directory; `what` as above.
void require_free(const std::filesystem::path& path, const std::string& what);

/// Makes `dir` if needed and proves by a small file, removed again, that this process can write there; throws
/// Error with the system's reason.
void probe_writable(const std::filesystem::path& dir);

}  // namespace qft::io
