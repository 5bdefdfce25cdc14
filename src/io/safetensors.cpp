#include "qft/io/safetensors.h"

#include "qft/core/error.h"
#include "qft/core/file_kind.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "safetensors_header.h"

namespace qft::io {

static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile result(File::open_read(path));
  const std::uint64_t size = result.file_.size();
  require(size >= 8, "'{}' is not a safetensors file: it has {} bytes", path.string(), size);
  std::uint64_t header_bytes = 0;
  result.file_.pread(0, &header_bytes, 8);
  if (header_bytes > kMaxHeaderBytes) {
    const std::string pointer = describe_pointer(result.file_.lead(), path);
    require(pointer.empty(), "{}", pointer);
  }
  require(header_bytes <= kMaxHeaderBytes, "'{}' is not a safetensors file: its header would have {} bytes, more than {}",
          path.string(), header_bytes, kMaxHeaderBytes);
  require(header_bytes <= size - 8, "'{}' is truncated: its header has {} bytes, the file only {}: copy it again", path.string(),
          header_bytes, size);
  std::string json(header_bytes, '\0');
  result.file_.pread(8, json.data(), header_bytes);
  Header header;
  try {
    header = parse_header(json, size - 8 - header_bytes);
  } catch (const Error& e) {
    fail("safetensors file '{}': {}", path.string(), e.what());
  }
  for (TensorEntry& entry : header.entries) entry.file_offset += 8 + header_bytes;
  result.set_entries(std::move(header.entries));
  result.metadata_ = std::move(header.metadata);
  return result;
}

Mapping SafetensorsFile::map(const TensorEntry& entry) const {
  return Mapping(file_, entry.file_offset, entry.bytes());
}

SafetensorsWriter::SafetensorsWriter(Storage& storage, const std::filesystem::path& path, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata)
    : path_(path) {
  std::string json;
  try {
    json = format_header(tensors, metadata);
  } catch (const Error& e) {
    fail("cannot write '{}': {}", path.string(), e.what());
  }
  for (const TensorSpec& tensor : tensors) data_bytes_ += tensor.bytes();
  std::uint64_t length = json.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &length, 8);
  head += json;
  header_bytes_ = head.size();
  file_ = storage.create(path);
  hasher_.update(head);
  file_->append(head.data(), head.size());
}

void SafetensorsWriter::append(const void* data, std::uint64_t bytes) {
  require(bytes <= data_bytes_ - written_, "'{}': got {} more bytes, but its tensors need only {}", path_.string(), bytes,
          data_bytes_ - written_);
  hasher_.update(data, bytes);
  file_->append(data, bytes);
  written_ += bytes;
}

void SafetensorsWriter::finish() {
  require(written_ == data_bytes_, "'{}': got {} bytes of tensors, expected {}", path_.string(), written_, data_bytes_);
  file_->sync();
  file_->close();
}

void sort_like_reference(std::vector<TensorSpec>& tensors) {
  // The reference's order of types, widest first.
  static constexpr DType kOrder[] = {DType::i64, DType::f64, DType::f32, DType::i32, DType::bf16,
                                     DType::f16, DType::i16, DType::i8,  DType::u8,  DType::boolean};
  const auto key = [](const TensorSpec& tensor) {
    return std::pair(std::find(std::begin(kOrder), std::end(kOrder), tensor.dtype), std::string_view(tensor.name));
  };
  std::stable_sort(tensors.begin(), tensors.end(), [&](const TensorSpec& a, const TensorSpec& b) { return key(a) < key(b); });
}

}  // namespace qft::io
