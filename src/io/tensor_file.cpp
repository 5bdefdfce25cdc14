#include "qft/io/tensor_file.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"
#include "qft/io/safetensors.h"
#include "qft/io/torch_file.h"

namespace qft::io {

std::uint64_t TensorSpec::elements() const {
  std::uint64_t n = 1;
  for (const std::int64_t d : shape) n *= static_cast<std::uint64_t>(d);
  return n;
}

void TensorFile::set_entries(std::vector<TensorEntry> entries) {
  entries_ = std::move(entries);
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const TensorEntry* TensorFile::find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &entries_[it->second];
}

const TensorEntry& TensorFile::at(std::string_view name) const {
  const TensorEntry* entry = find(name);
  require(entry != nullptr, "'{}' has no tensor '{}'", path().string(), name);
  return *entry;
}

void TensorFile::read(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const {
  const std::uint64_t total = entry.bytes();
  require(first_byte <= total && bytes <= total - first_byte, "'{}': bytes [{}, {}) of tensor '{}' requested, it has {}",
          path().string(), first_byte, first_byte + bytes, entry.name, total);
  if (bytes > 0) read_checked(entry, first_byte, bytes, dst);
}

void TensorFile::read_floats(const TensorEntry& entry, float* dst) const {
  std::vector<char> bytes(entry.bytes());
  read(entry, 0, bytes.size(), bytes.data());
  to_float(entry.dtype, bytes.data(), entry.elements(), dst);
}

void TensorFile::read_checked(const TensorEntry& entry, std::uint64_t first_byte, std::uint64_t bytes, void* dst) const {
  file_.pread(entry.file_offset + first_byte, dst, bytes);
}

bool is_torch_name(const std::filesystem::path& path) {
  const std::string type = path.extension().string();
  return type == ".bin" || type == ".pt" || type == ".pth";
}

std::unique_ptr<TensorFile> open_tensor_file(const std::filesystem::path& path) {
  if (is_torch_name(path)) return std::make_unique<TorchFile>(TorchFile::open(path));
  return std::make_unique<SafetensorsFile>(SafetensorsFile::open(path));
}

}  // namespace qft::io
