// A file of named tensors in any format: their descriptions, and their bytes by range.
#pragma once

#include "qft/core/dtype.h"
#include "qft/io/file.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace qft::io {

/// Texts stored with the tensors. In safetensors: the header's "__metadata__" object, e.g. {"format": "pt"}.
using Metadata = std::map<std::string, std::string>;

/// A tensor's description without its bytes. Row-major.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;

  /// Returns the product of the shape (1 for a scalar).
  std::uint64_t elements() const;
  std::uint64_t bytes() const { return elements() * size_of(dtype); }
};

/// A tensor in a file.
struct TensorEntry : TensorSpec {
  std::uint64_t file_offset = 0;  // offset of the first byte from the start of the file
};

/// An open file of tensors. Immutable; reads are thread-safe.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  /// In file order.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// Returns nullptr if there is no such tensor.
  const TensorEntry* find(std::string_view name) const;
  /// Throws Error with the file if there is no such tensor.
  const TensorEntry& at(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t file_bytes() const { return file_.size(); }

  /// Copies bytes [first_byte, first_byte + bytes) of the row-major tensor. Throws Error if the range exceeds the tensor or the
  /// read fails. `entry` must be one of entries().
  void read(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;
  /// Reads the whole tensor as fp32, [entry.elements()]. Throws Error if the read fails or the type is not floating-point.
  void read_floats(const TensorEntry& entry, float* dst) const;

 protected:
  explicit TensorFile(File file) : file_(std::move(file)) {}
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;
  /// Names must be distinct: each format reports a duplicate in its own words.
  void set_entries(std::vector<TensorEntry> entries);
  std::size_t index_of(const TensorEntry& entry) const { return static_cast<std::size_t>(&entry - entries_.data()); }
  /// The range must lie in the tensor.
  virtual void read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;

  File file_;
  Metadata metadata_;

 private:
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// True for the endings of torch.save() files: .bin, .pt, .pth.
bool is_torch_name(const std::filesystem::path& path);

/// Opens a file of tensors: a torch.save() file if is_torch_name(), otherwise safetensors. Throws Error like their open().
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path);

}  // namespace qft::io
