// A file of named tensors, whatever its format: what they are, and their bytes by range.
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

/// Texts beside the tensors: of a safetensors file the "__metadata__" object of its header, e.g. {"format": "pt"}.
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

/// An open file of tensors. Immutable; reads are thread-safe.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  /// In the order of the file.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  /// nullptr where there is none.
  const TensorEntry* find(std::string_view name) const;
  /// Throws Error naming the file.
  const TensorEntry& at(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }
  const std::filesystem::path& path() const { return file_.path(); }
  std::uint64_t file_bytes() const { return file_.size(); }

  /// Copies bytes [first_byte, first_byte + bytes) of the tensor, laid out row-major; throws Error on a range outside it or a
  /// failed read. `entry` is one of entries().
  void read(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;
  /// The whole tensor as fp32, [entry.elements()]; throws Error on a failed read, and where it is of no floating type.
  void read_floats(const TensorEntry& entry, float* dst) const;

 protected:
  explicit TensorFile(File file) : file_(std::move(file)) {}
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;
  /// Names are distinct: each format says in its own words which one is there twice.
  void set_entries(std::vector<TensorEntry> entries);
  std::size_t index_of(const TensorEntry& entry) const { return static_cast<std::size_t>(&entry - entries_.data()); }
  /// The range lies in the tensor.
  virtual void read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const;

  File file_;
  Metadata metadata_;

 private:
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// True for the names that files of torch.save() have: .bin, .pt, .pth.
bool is_torch_name(const std::filesystem::path& path);

/// Opens a file of tensors: of torch.save() by its name, else safetensors. Throws Error as these do.
std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path);

}  // namespace qft::io
