#include "qft/io/safetensors.h"

#include "qft/core/error.h"
#include "qft/core/file_ending.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

namespace qft::io {
namespace {

using Json = nlohmann::json;

/// The reference implementation's limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

struct Header {
  std::vector<TensorEntry> entries;  // sorted by file_offset, here counted from the start of the data
  Metadata metadata;
};

constexpr std::string_view kMetadataKey = "__metadata__";

// Receives the header's tokens one by one: no document is built, so nesting costs nothing and duplicate keys are seen.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  Header take() { return std::move(header_); }
  const std::vector<std::uint64_t>& ends() const { return ends_; }

  bool start_object(std::size_t) override {
    if (++depth_ == 1) return true;
    require(depth_ == 2 && !in_array_, "the header is nested too deeply at '{}'", name_);
    if (name_ != kMetadataKey) {
      entry_ = {};
      entry_.name = name_;
      seen_.clear();
    }
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      require(names_.insert(text).second, "the header names '{}' twice", text);
      name_ = text;
    } else {
      require(seen_.insert(name_ == kMetadataKey ? std::string(kMetadataKey) + text : text).second,
              "the header repeats the key '{}' of '{}'", text, name_);
      field_ = text;
    }
    return true;
  }

  bool end_object() override {
    if (--depth_ == 1 && name_ != kMetadataKey) finish_entry();
    return true;
  }

  bool start_array(std::size_t) override {
    require(depth_ == 2 && !in_array_ && name_ != kMetadataKey && (field_ == "shape" || field_ == "data_offsets"),
            "the header has an unexpected array in '{}'", name_);
    in_array_ = true;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    if (field_ == "shape") {
      for (const std::uint64_t n : numbers_) {
        require(n <= std::uint64_t(std::numeric_limits<std::int64_t>::max()), "tensor '{}' has a dimension of {}", name_, n);
        entry_.shape.push_back(static_cast<std::int64_t>(n));
      }
    } else {
      require(numbers_.size() == 2, "tensor '{}' has {} data_offsets instead of 2", name_, numbers_.size());
      entry_.file_offset = numbers_[0];
      end_ = numbers_[1];
    }
    return true;
  }

  bool string(std::string& text) override {
    require(depth_ == 2 && !in_array_, "the header has unexpected text in '{}'", name_);
    if (name_ == kMetadataKey) {
      header_.metadata[field_] = text;
    } else {
      require(field_ == "dtype", "tensor '{}' has text for '{}'", name_, field_);
      try {
        // 8-bit floats are codes that need a scale: treated as bytes.
        entry_.dtype = text == "F8_E4M3" ? DType::u8 : dtype_from_safetensors(text);
      } catch (const Error& e) {
        fail("tensor '{}': {}", name_, e.what());
      }
    }
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_array_) return refuse(std::to_string(value));
    numbers_.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t value) override { return refuse(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return refuse(text); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool null() override { return refuse("null"); }
  bool binary(Json::binary_t&) override { return refuse("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    fail("the header is not valid JSON at byte {}", at);
  }

 private:
  bool refuse(const std::string& value) const { fail("the header has an unexpected {} in '{}'", value, name_); }

  void finish_entry() {
    for (const char* needed : {"dtype", "shape", "data_offsets"})
      require(seen_.count(needed) == 1, "tensor '{}' has no {}", name_, needed);
    require(seen_.size() == 3, "tensor '{}' has keys other than dtype, shape and data_offsets", name_);
    header_.entries.push_back(std::move(entry_));
    ends_.push_back(end_);
  }

  Header header_;
  std::vector<std::uint64_t> ends_;  // data_offsets[1] of each entry
  int depth_ = 0;
  bool in_array_ = false;
  std::string name_, field_;
  std::unordered_set<std::string> names_, seen_;
  TensorEntry entry_;
  std::uint64_t end_ = 0;
  std::vector<std::uint64_t> numbers_;
};

std::uint64_t checked_bytes(const TensorEntry& entry) {
  std::uint64_t bytes = size_of(entry.dtype);
  for (const std::int64_t n : entry.shape)
    require(!__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(n), &bytes),
            "tensor '{}' has a shape that exceeds 2^64 bytes", entry.name);
  return bytes;
}

/// Throws Error (without the file's name) if the header violates the format.
Header parse_header(std::string_view json, std::uint64_t data_bytes) {
  require(!json.empty() && json.front() == '{', "the header does not start with '{{'");
  HeaderReader reader;
  Json::sax_parse(json.begin(), json.end(), &reader);
  const std::vector<std::uint64_t> ends = reader.ends();
  Header header = reader.take();

  std::vector<std::size_t> order(header.entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    const TensorEntry& entry = header.entries[i];
    const std::uint64_t bytes = checked_bytes(entry);
    require(entry.file_offset <= ends[i] && ends[i] - entry.file_offset == bytes,
            "tensor '{}' has data_offsets [{}, {}], but its shape needs {} bytes", entry.name, entry.file_offset, ends[i], bytes);
  }
  // Empty tensors share an offset with their neighbour: sort by end too, so that they come first.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(header.entries[a].file_offset, ends[a]) < std::pair(header.entries[b].file_offset, ends[b]);
  });
  std::vector<TensorEntry> sorted;
  sorted.reserve(order.size());
  std::uint64_t next = 0;
  for (const std::size_t i : order) {
    TensorEntry& entry = header.entries[i];
    require(entry.file_offset == next, "tensor '{}' starts at data byte {}, but the one before ends at {}", entry.name,
            entry.file_offset, next);
    next = ends[i];
    sorted.push_back(std::move(entry));
  }
  require(next <= data_bytes, "the file is truncated: its tensors need {} bytes of data, it has {}: copy it again", next,
          data_bytes);
  require(next == data_bytes, "the file has {} bytes of data, but its tensors only {}", data_bytes, next);
  header.entries = std::move(sorted);
  return header;
}

/// Returns the header text, padded with blanks to a multiple of 8 bytes.
std::string format_header(const std::vector<TensorSpec>& tensors, const Metadata& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!metadata.empty()) json[std::string(kMetadataKey)] = metadata;
  std::uint64_t begin = 0;
  std::unordered_set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    require(!tensor.name.empty() && tensor.name != kMetadataKey, "a tensor cannot be called '{}'", tensor.name);
    require(names.insert(tensor.name).second, "tensor '{}' is given twice", tensor.name);
    for (const std::int64_t n : tensor.shape) require(n >= 0, "tensor '{}' has a dimension of {}", tensor.name, n);
    const std::uint64_t end = begin + tensor.bytes();
    // Append directly: operator[] of ordered_json searches all earlier keys.
    json.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(
        tensor.name, nlohmann::ordered_json{
                         {"dtype", safetensors_name(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}});
    begin = end;
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const nlohmann::json::exception& e) {
    fail("a tensor's name is not UTF-8: {}", e.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  require(text.size() <= kMaxHeaderBytes, "the header of {} tensors has {} bytes, more than {}", tensors.size(), text.size(),
          kMaxHeaderBytes);
  return text;
}

}  // namespace

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
