// Reads files by position: exact reads with precise errors, and read-only mappings. Identifies files by samples of their bytes.
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
  /// Opens a regular file. Throws Error with the path and the system's reason; rejects directories.
  static File open_read(const std::filesystem::path& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Reads exactly `bytes` bytes at `offset` into `dst`; throws Error with path, offset, wanted and read bytes.
  void pread(std::uint64_t offset, void* dst, std::uint64_t bytes) const;
  /// Returns the first kLeadBytes, or the whole file if it is shorter, to recognise the file's kind.
  std::string lead() const;
  /// Size in bytes at the time of opening.
  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  File(std::filesystem::path path, int fd, std::uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// A read-only mapping of a byte range. It outlives the File. If another process truncates the file meanwhile, an access to the
/// lost pages raises SIGBUS: use pread for files that may change.
class Mapping {
 public:
  Mapping() = default;
  /// Throws Error if the range exceeds the file or the system refuses.
  Mapping(const File& file, std::uint64_t offset, std::uint64_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Tells the system that the range will be read soon, in order.
  void will_need() const;
  /// Lets the system reclaim the memory of `bytes` bytes from `offset` on; a later access reads them again.
  void release(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void* base_ = nullptr;  // page-aligned, at or before data_
  std::uint64_t mapped_ = 0;
  const std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

/// Returns a whole text file (configuration, index). Throws Error if the file is missing, larger than `limit` bytes, or not plain
/// text (describe_non_text() of core/file_ending.h).
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit = 256u << 20);

/// Reads a JSON file with the checks of parse_json() in core/json.h; throws Error with the path.
nlohmann::json read_json(const std::filesystem::path& path);

/// Throws Error unless `path` exists and is a directory; `what` describes it in the message.
void require_directory(const std::filesystem::path& path, const std::string& what);

/// Throws ConfigError unless `path` does not exist or is an empty directory; `what` as above.
void require_absent_or_empty(const std::filesystem::path& path, const std::string& what);

/// Creates `dir` if needed and checks with a small temporary file that this process can write there. Throws Error with the
/// system's reason.
void probe_writable(const std::filesystem::path& dir);

/// True if the path still names the open file: a lock on a removed or replaced file keeps nobody out.
bool is_same_file(int fd, const std::filesystem::path& path);

/// Returns 16 hex digits: a hash of the file size and ten samples, the first and last bytes among them; a small file is hashed
/// whole. Throws Error.
std::string sampled_hash(const File& file);

}  // namespace qft::io
