// safetensors files (https://github.com/huggingface/safetensors, format of README): 8 bytes little-endian
// header length, a JSON header, the tensors' bytes. The reader trusts nothing; the writer streams.
#pragma once

#include "qft/core/hash.h"
#include "qft/io/file.h"
#include "qft/io/storage.h"
#include "qft/io/tensor_file.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace qft::io {

/// An open safetensors file. Immutable; reads are thread-safe.
class SafetensorsFile : public TensorFile {
 public:
  /// Reads and checks the header: length (at most 100 MB), JSON (depth, duplicates), dtypes, shapes against
  /// bytes, and that the tensors cover the file's data exactly, without hole, overlap or truncation. Throws
  /// Error naming the file, the tensor and the fault.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// The tensor's bytes, mapped read-only. Their alignment is whatever the file has (only 1 is sure).
  Mapping map(const TensorEntry& entry) const;

 private:
  using TensorFile::TensorFile;
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
