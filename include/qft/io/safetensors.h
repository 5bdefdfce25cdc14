// safetensors files (https://github.com/huggingface/safetensors, format of README): 8 bytes little-endian
// header length, a JSON header, the tensors' bytes. The reader trusts nothing; the writer streams.
#pragma once

#include "qft/core/dtype.h"
#include "qft/core/hash.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace qft::io {

/// The "__metadata__" object of the header, e.g. {"format": "pt"}.
using Metadata = std::map<std::string, std::string>;

/// What a tensor is, apart from its bytes. Row-major.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  /// Product of the shape (1 for a scalar).
  std::uint64_t elements() const;
  std::uint64_t bytes() const { return elements() * size_of(dtype); }
};

/// A tensor of a file.
struct TensorEntry : TensorSpec {
  std::uint64_t file_offset = 0;  // of its first byte, from the start of the file
};

/// An open safetensors file. Immutable; reads are thread-safe.
class SafetensorsFile {
 public:
  /// Reads and checks the header: length (at most 100 MB), JSON (depth, duplicates), dtypes, shapes against
  /// bytes, and that the tensors cover the file's data exactly, without hole, overlap or truncation. Throws
  /// Error naming the file, the tensor and the fault.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// In file order.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// nullptr where there is none.
  const TensorEntry* find(std::string_view name) const;
  /// Throws Error naming the file.
  const TensorEntry& at(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t file_bytes() const { return file_.size(); }

  /// Copies bytes [first_byte, first_byte + bytes) of the tensor; throws on a range outside it or a failed read.
  void read(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;
  /// The tensor's bytes, mapped read-only. Their alignment is whatever the file has (only 1 is sure).
  Mapping map(const TensorEntry& entry) const;

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}
  File file_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
  Metadata metadata_;
};

/// Writes one file, front to back, without holding it in memory.
class SafetensorsWriter {
 public:
  /// Writes the header at once; the tensors lie in the order given. Throws Error on a duplicate or empty name
  /// or a negative dimension.
  SafetensorsWriter(Storage& storage, const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const Metadata& metadata = {{"format", "pt"}});
  /// The next bytes of the tensors, one after another; calls need not end where tensors end.
  void append(const void* data, std::uint64_t bytes);
  /// Checks that all bytes came, syncs and closes. Without it the file is unfinished.
  void finish();

  std::uint64_t file_bytes() const { return header_bytes_ + data_bytes_; }
  /// XXH3-128 of the bytes so far; after finish() that of the file.
  std::string checksum() const { return hasher_.hex(); }

 private:
  std::filesystem::path path_;
  std::unique_ptr<WritableFile> file_;
  Hasher hasher_;
  std::uint64_t header_bytes_ = 0, data_bytes_ = 0, written_ = 0;
};

/// The order in which the reference implementation lays tensors out: wide types first, then by name, which
/// keeps every tensor aligned to its element size.
void sort_like_reference(std::vector<TensorSpec>& tensors);

}  // namespace qft::io
