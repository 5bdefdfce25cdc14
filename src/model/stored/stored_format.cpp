#include "stored_format.h"

#include "qft/core/error.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/ranges.h>

namespace qft::model {
namespace {

const std::vector<DType> kPlain{DType::f32, DType::bf16, DType::f16};

bool is_plain(const ops::QuantizedLayout& layout) {
  return layout.kind.format == ops::QuantFormat::fp32;
}

}  // namespace

std::vector<std::string> stored_tensors(const StoredFormat& format, const std::string& weight,
                                        const ops::QuantizedLayout& layout) {
  return is_plain(layout) ? std::vector{weight} : format.tensors(weight);
}

void check_stored(const StoredFormat& format, const io::ModelFiles& files, const std::string& weight,
                  const ops::QuantizedLayout& layout) {
  if (is_plain(layout)) return require_tensor(files, weight, {layout.rows, layout.columns}, kPlain);
  format.check(files, weight, layout);
}

std::int64_t read_stored(const StoredFormat& format, const io::ModelFiles& files, const std::string& weight,
                         const ops::QuantizedLayout& layout, std::uint8_t* bytes) {
  if (!is_plain(layout)) return format.read(files, weight, layout, bytes);
  std::int64_t read = 0;
  const std::vector<float> values = read_floats(files, weight, read);
  std::memcpy(bytes, values.data(), values.size() * sizeof(float));
  return read;
}

std::string beside(const std::string& weight, std::string_view suffix) {
  constexpr std::string_view kWeight = ".weight";
  return (weight.ends_with(kWeight) ? weight.substr(0, weight.size() - kWeight.size()) : weight) + std::string(suffix);
}

void require_tensor(const io::ModelFiles& files, const std::string& name, const std::vector<std::int64_t>& shape,
                    const std::vector<DType>& types) {
  const io::TensorLocation& at = files.at(name);
  const io::TensorEntry& entry = *at.entry;
  require(entry.shape == shape,
          "'{}': tensor '{}' has shape [{}], but config.json (model sizes, quantization_config) requires [{}]: does it belong to "
          "this model?",
          at.file->path().string(), name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "));
  std::string names;
  for (const DType type : types) names += (names.empty() ? "" : " or ") + std::string(safetensors_name(type));
  require(std::ranges::find(types, entry.dtype) != types.end(), "'{}': tensor '{}' has dtype {}: expected {}",
          at.file->path().string(), name, safetensors_name(entry.dtype), names);
}

std::vector<char> read_tensor(const io::ModelFiles& files, const std::string& name, std::int64_t& read) {
  const io::TensorLocation& at = files.at(name);
  std::vector<char> bytes(at.entry->bytes());
  at.file->read(*at.entry, 0, bytes.size(), bytes.data());
  read += std::ssize(bytes);
  return bytes;
}

std::vector<float> read_floats(const io::ModelFiles& files, const std::string& name, std::int64_t& read) {
  const io::TensorLocation& at = files.at(name);
  std::vector<float> values(at.entry->elements());
  at.file->read_floats(*at.entry, values.data());
  read += static_cast<std::int64_t>(at.entry->bytes());
  const auto odd = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  require(odd == values.end(), "'{}': tensor '{}': element {} is {}: is the file damaged?", at.file->path().string(), name,
          odd - values.begin(), odd == values.end() ? 0.0F : *odd);
  return values;
}

}  // namespace qft::model
