#include "stored_format.h"

#include "qft/core/convert.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cmath>

#include <fmt/ranges.h>

namespace qft::model {

std::unique_ptr<StoredFormat> make_stored_format(const StoredQuantization& stored) {
  switch (stored.method) {
    case StoredMethod::fp8:
      return make_fp8_format(stored);
    case StoredMethod::gptq:
      return make_gptq_format(stored);
    case StoredMethod::awq:
      return make_awq_format(stored);
    default:
      return make_bitsandbytes_format();
  }
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
          "'{}': tensor '{}' has shape [{}], but config.json (sizes of the model, quantization_config) asks for [{}]: is it of "
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
  const std::vector<char> bytes = read_tensor(files, name, read);
  std::vector<float> values(at.entry->elements());
  to_float(at.entry->dtype, bytes.data(), values.size(), values.data());
  const auto odd = std::ranges::find_if_not(values, [](float x) { return std::isfinite(x); });
  require(odd == values.end(), "'{}': tensor '{}': element {} is {}: is the file damaged?", at.file->path().string(), name,
          odd - values.begin(), odd == values.end() ? 0.0F : *odd);
  return values;
}

}  // namespace qft::model
