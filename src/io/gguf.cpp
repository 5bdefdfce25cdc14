#include "qft/io/gguf.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace qft::io {
namespace {

constexpr std::uint64_t kAlignment = 32;  ///< of the tensors' offsets, counted from the first tensor
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kQ8Bytes = 2 + kQ8Block;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// GGUF's numbers for types of metadata.
enum class ValueType : std::uint32_t { u32 = 4, i32 = 5, f32 = 6, boolean = 7, string = 8, array = 9 };

/// Builds everything before the tensors, byte by byte.
class Head {
 public:
  template <class T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void text(const std::string& text) {
    put<std::uint64_t>(text.size());
    bytes_ += text;
  }
  void type(ValueType type) { put(static_cast<std::uint32_t>(type)); }

  void value(std::uint32_t v) { type(ValueType::u32), put(v); }
  void value(float v) { type(ValueType::f32), put(v); }
  void value(bool v) { type(ValueType::boolean), put<std::uint8_t>(v ? 1 : 0); }
  void value(const std::string& v) { type(ValueType::string), text(v); }
  void value(const std::vector<std::string>& v) {
    array(ValueType::string, v.size());
    for (const std::string& item : v) text(item);
  }
  void value(const std::vector<std::int32_t>& v) {
    array(ValueType::i32, v.size());
    for (const std::int32_t item : v) put(item);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void array(ValueType of, std::uint64_t count) {
    type(ValueType::array);
    type(of);
    put(count);
  }

  std::string bytes_;
};

void to_q8(const float* values, std::uint64_t count, char* to) {
  for (std::uint64_t first = 0; first < count; first += kQ8Block, to += kQ8Bytes) {
    float most = 0.0F;
    for (std::int64_t i = 0; i < kQ8Block; ++i) most = std::max(most, std::abs(values[first + i]));
    const float scale = most / 127.0F, inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    from_float(DType::f16, &scale, 1, to);
    for (std::int64_t i = 0; i < kQ8Block; ++i) to[2 + i] = static_cast<char>(std::round(values[first + i] * inverse));
  }
}

}  // namespace

std::string_view name_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::q8_0:
      return "Q8_0";
    case GgufType::bf16:
      return "BF16";
  }
  return "";
}

std::uint64_t bytes_of(GgufType type, std::uint64_t elements) {
  if (type == GgufType::q8_0) return elements / kQ8Block * kQ8Bytes;
  return elements * (type == GgufType::f32 ? 4 : 2);
}

std::uint64_t GgufTensor::bytes() const {
  std::uint64_t elements = 1;
  for (const std::int64_t n : shape) elements *= static_cast<std::uint64_t>(n);
  return bytes_of(type, elements);
}

void to_gguf(GgufType type, const float* values, std::uint64_t count, char* to) {
  if (type == GgufType::q8_0) return to_q8(values, count, to);
  from_float(type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16, values, count, to);
}

GgufWriter::GgufWriter(Storage& storage, const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<GgufTensor> tensors)
    : path_(path), file_(storage.create(path)), tensors_(std::move(tensors)) {
  Head head;
  for (const char c : {'G', 'G', 'U', 'F'}) head.put(c);
  head.put(kVersion);
  head.put<std::uint64_t>(tensors_.size());
  head.put<std::uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    head.text(key);
    std::visit([&](const auto& v) { head.value(v); }, value);
  }
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors_) {
    require(names.insert(tensor.name).second, "tensor '{}' is given twice", tensor.name);
    require(tensor.type != GgufType::q8_0 || tensor.shape.back() % kQ8Block == 0,
            "tensor '{}' has {} columns, not a multiple of the block size {}", tensor.name, tensor.shape.back(), kQ8Block);
    head.text(tensor.name);
    head.put(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto n = tensor.shape.rbegin(); n != tensor.shape.rend(); ++n) head.put(static_cast<std::uint64_t>(*n));
    head.put(static_cast<std::uint32_t>(tensor.type));
    head.put(offset);
    offset += aligned(tensor.bytes());
  }
  file_->append(head.bytes().data(), head.bytes().size());
  written_ = head.bytes().size();
  pad();
}

void GgufWriter::pad() {
  static constexpr char kZeros[kAlignment] = {};
  const std::uint64_t rest = aligned(written_) - written_;
  file_->append(kZeros, rest);
  written_ += rest;
}

void GgufWriter::append(const void* data, std::uint64_t bytes) {
  require(current_ < tensors_.size() && in_tensor_ + bytes <= tensors_[current_].bytes(), "'{}': {} bytes too many",
          path_.string(), bytes);
  file_->append(data, bytes);
  written_ += bytes;
  in_tensor_ += bytes;
  if (in_tensor_ < tensors_[current_].bytes()) return;
  pad();
  ++current_;
  in_tensor_ = 0;
}

void GgufWriter::finish() {
  require(current_ == tensors_.size(), "'{}': got {} of {} tensors", path_.string(), current_, tensors_.size());
  file_->sync();
  file_->close();
}

}  // namespace qft::io
