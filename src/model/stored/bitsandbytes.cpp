// Weights in the format of bitsandbytes 0.50 and transformers: 4-bit codes with a quant_state, or int8 with SCB.
#include "qft/core/error.h"
#include "qft/core/json.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized_tables.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "stored_format.h"
#include <fmt/ranges.h>

namespace qft::model {
namespace {

using ops::QuantFormat;

constexpr std::uint64_t kMaxStateBytes = 1 << 16;  ///< maximum bytes of a weight's description
const std::vector<DType> kFloat{DType::f32};

std::string state_of(const std::string& weight, QuantFormat format) {
  return weight + ".quant_state.bitsandbytes__" + std::string(name_of(format));
}

class Bitsandbytes : public StoredFormat {
 public:
  ops::Quantization kind(const io::ModelFiles& files, const std::string& weight) const override {
    for (const QuantFormat format : {QuantFormat::nf4, QuantFormat::fp4})
      if (files.find(state_of(weight, format)) != nullptr) return {format, files.find(weight + ".nested_absmax") != nullptr};
    return {files.find(beside(weight, ".SCB")) != nullptr ? QuantFormat::int8 : QuantFormat::none};
  }

  std::vector<std::string> tensors(const std::string& weight) const override {
    return {weight,
            weight + ".absmax",
            weight + ".quant_map",
            weight + ".nested_absmax",
            weight + ".nested_quant_map",
            state_of(weight, QuantFormat::nf4),
            state_of(weight, QuantFormat::fp4),
            beside(weight, ".SCB"),
            beside(weight, ".weight_format")};
  }

  void check(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout) const override {
    if (layout.kind.format == QuantFormat::int8) {
      require_tensor(files, weight, {layout.rows, layout.columns}, {DType::i8});
      return require_tensor(files, beside(weight, ".SCB"), {layout.rows}, kFloat);
    }
    const io::TensorLocation& codes = files.at(weight);  // of any element type (bnb_4bit_quant_storage)
    require(codes.entry->bytes() == static_cast<std::uint64_t>(layout.code_bytes()),
            "'{}': tensor '{}' has {} bytes, but {} x {} weights of 4 bits need {}: does it belong to this model?",
            codes.file->path().string(), weight, codes.entry->bytes(), layout.rows, layout.columns, layout.code_bytes());
    require_tensor(files, weight + ".absmax", {layout.blocks()}, {layout.kind.nested ? DType::u8 : DType::f32});
    require_tensor(files, weight + ".quant_map", {16}, kFloat);
    if (!layout.kind.nested) return;
    require_tensor(files, weight + ".nested_absmax", {(layout.blocks() + ops::kNestedBlock - 1) / ops::kNestedBlock}, kFloat);
    require_tensor(files, weight + ".nested_quant_map", {256}, kFloat);
  }

  std::int64_t read(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout,
                    std::uint8_t* bytes) const override {
    std::int64_t count = 0;
    const auto copy = [&](const std::string& name, std::int64_t to) {
      const std::vector<char> values = read_tensor(files, name, count);
      std::memcpy(bytes + to, values.data(), values.size());
    };
    copy(weight, 0);
    if (layout.kind.format == QuantFormat::int8) {
      copy_floats(files, beside(weight, ".SCB"), bytes + layout.scales, count);
      require_rows(files, beside(weight, ".weight_format"), count);
      return count;
    }
    const double offset = check_state(files, weight, layout, count);
    require_table(files, weight + ".quant_map", ops::four_bit_values(layout.kind.format), count);
    if (!layout.kind.nested) {
      copy_floats(files, weight + ".absmax", bytes + layout.scales, count);
      return count;
    }
    copy(weight + ".absmax", layout.scales);
    const std::int64_t nested = copy_floats(files, weight + ".nested_absmax", bytes + layout.nested_scales, count);
    require_table(files, weight + ".nested_quant_map", ops::dynamic_map(true), count);
    const auto narrow = static_cast<float>(offset);
    std::memcpy(bytes + layout.nested_scales + 4 * nested, &narrow, sizeof(narrow));
    return count;
  }

 private:
  static std::int64_t copy_floats(const io::ModelFiles& files, const std::string& name, std::uint8_t* to, std::int64_t& count) {
    const std::vector<float> values = read_floats(files, name, count);
    std::memcpy(to, values.data(), values.size() * sizeof(float));
    return std::ssize(values);
  }

  /// The layouts that bitsandbytes uses on some GPUs are not row by row.
  static void require_rows(const io::ModelFiles& files, const std::string& name, std::int64_t& count) {
    if (files.find(name) == nullptr) return;
    const std::vector<char> format = read_tensor(files, name, count);
    require(format.size() == 1 && format[0] == 0, "'{}': tensor '{}' is {}: only 0 (rows) is implemented",
            files.at(name).file->path().string(), name, format.empty() ? -1 : static_cast<int>(format[0]));
  }

  template <std::size_t N>
  static void require_table(const io::ModelFiles& files, const std::string& name, const std::array<float, N>& table,
                            std::int64_t& count) {
    const std::vector<float> theirs = read_floats(files, name, count);
    for (std::size_t i = 0; i < N; ++i)
      require(theirs[i] == table[i], "'{}': tensor '{}' has {} at {}, but bitsandbytes has {}: other tables are not implemented",
              files.at(name).file->path().string(), name, theirs[i], i, table[i]);
  }

  /// Checks the quant_state and returns the offset of nested scales.
  static double check_state(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout,
                            std::int64_t& count) {
    const std::string name = state_of(weight, layout.kind.format);
    const io::TensorLocation& at = files.at(name);
    const std::string where = fmt::format("'{}': tensor '{}'", at.file->path().string(), name);
    require(at.entry->bytes() <= kMaxStateBytes, "{} has {} bytes, more than {}: is the file damaged?", where, at.entry->bytes(),
            kMaxStateBytes);
    const std::vector<char> text = read_tensor(files, name, count);
    const nlohmann::json state = parse_json(std::string_view(text.data(), text.size()), where);
    require(state.is_object(), "{} is not a JSON object", where);
    const auto same = [&](const char* key, const nlohmann::json& expected) {
      const nlohmann::json theirs = state.value(key, nlohmann::json());
      require(theirs == expected, "{}: {} is {}, but only {} is implemented for this weight", where, key, theirs.dump(),
              expected.dump());
    };
    same("quant_type", std::string(name_of(layout.kind.format)));
    same("blocksize", ops::kFourBitBlock);
    same("shape", nlohmann::json{layout.rows, layout.columns});
    if (!layout.kind.nested) return 0.0;
    same("nested_blocksize", ops::kNestedBlock);
    const nlohmann::json offset = state.value("nested_offset", nlohmann::json());
    require(offset.is_number() && std::abs(offset.get<double>()) <= std::numeric_limits<float>::max(),
            "{}: nested_offset is {}, expected a number in fp32", where, offset.dump());
    return offset.get<double>();
  }
};

}  // namespace

std::unique_ptr<StoredFormat> make_bitsandbytes_format() {
  return std::make_unique<Bitsandbytes>();
}

}  // namespace qft::model
