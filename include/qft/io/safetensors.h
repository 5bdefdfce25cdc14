// safetensors files (https://github.com/huggingface/safetensors, format of README): 8 bytes little-endian header length, a JSON
// header, the tensors' bytes. The reader does not trust the file; the writer streams.
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
  /// Reads and checks the header: length (at most 100 MB), JSON (depth, duplicates), dtypes, shapes against bytes, and that the
  /// tensors cover the file's data exactly, without hole, overlap or truncation. Throws Error with the file, the tensor and the
  /// fault.
  static SafetensorsFile open(const std::filesystem::path& path);

  /// Maps the tensor's bytes read-only. No alignment is guaranteed.
  Mapping map(const TensorEntry& entry) const;

 private:
  using TensorFile::TensorFile;
};

/// Writes one file from front to back without holding its content in memory.
class SafetensorsWriter {
 public:
  /// Writes the header at once; the tensors follow in the given order. Throws Error on a duplicate or empty name or a negative
  /// dimension.
  SafetensorsWriter(Storage& storage, const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                    const Metadata& metadata = {{"format", "pt"}});
  /// Appends the next bytes of the tensors, one after another; calls need not end at ends of tensors.
  void append(const void* data, std::uint64_t bytes);
  /// Throws Error unless all bytes were given; syncs and closes. Without this call the file is unfinished.
  void finish();

  std::uint64_t file_bytes() const { return header_bytes_ + data_bytes_; }
  /// Returns the XXH3-128 of the bytes so far; after finish() the file's.
  std::string checksum() const { return hasher_.hex(); }

 private:
  std::filesystem::path path_;
  std::unique_ptr<WritableFile> file_;
  Hasher hasher_;
  std::uint64_t header_bytes_ = 0, data_bytes_ = 0, written_ = 0;
};

/// Sorts the tensors like the reference implementation: wide types first, then by name. This keeps every tensor aligned to its
/// element size.
void sort_like_reference(std::vector<TensorSpec>& tensors);

}  // namespace qft::io
