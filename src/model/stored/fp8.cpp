// Weights in e4m3 with a scale per tile (releases by Qwen and DeepSeek: weight_scale_inv), per row or per tensor.
#include "qft/core/error.h"

#include <algorithm>
#include <cstring>

#include "stored_format.h"

namespace qft::model {
namespace {

const std::vector<DType> kScales{DType::f32, DType::bf16, DType::f16};

class Fp8 : public StoredFormat {
 public:
  explicit Fp8(const StoredQuantization& stored) : stored_(stored) {}

  ops::Quantization kind(const io::ModelFiles& files, const std::string& weight) const override {
    if (files.find(scale_of(weight)) == nullptr) return {};
    return stored_.kind;
  }

  std::vector<std::string> tensors(const std::string& weight) const override {
    return {weight, scale_of(weight), beside(weight, ".activation_scale"), beside(weight, ".input_scale")};
  }

  void check(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout) const override {
    require_tensor(files, weight, {layout.rows, layout.columns}, {DType::u8});
    if (is_one(files, weight)) return;
    const std::vector<std::int64_t> tiles{layout.blocks() / layout.blocks_per_row(), layout.blocks_per_row()};
    require_tensor(files, scale_of(weight), tiles, kScales);
  }

  std::int64_t read(const io::ModelFiles& files, const std::string& weight, const ops::QuantizedLayout& layout,
                    std::uint8_t* bytes) const override {
    std::int64_t count = 0;
    const std::vector<char> codes = read_tensor(files, weight, count);
    const auto odd = std::ranges::find_if(codes, [](char code) { return (code & 0x7F) == 0x7F; });
    require(odd == codes.end(), "'{}': tensor '{}': element {} is NaN: is the file damaged?",
            files.at(weight).file->path().string(), weight, odd - codes.begin());
    std::memcpy(bytes, codes.data(), codes.size());
    std::vector<float> scales = read_floats(files, scale_of(weight), count);
    if (is_one(files, weight)) scales.assign(static_cast<std::size_t>(layout.blocks()), scales.front());
    std::memcpy(bytes + layout.scales, scales.data(), scales.size() * sizeof(float));
    return count;
  }

 private:
  std::string scale_of(const std::string& weight) const { return beside(weight, stored_.scale); }
  /// Returns true if the whole tensor has one scale.
  bool is_one(const io::ModelFiles& files, const std::string& weight) const {
    return stored_.kind.columns == 0 && files.at(scale_of(weight)).entry->elements() == 1;
  }

  StoredQuantization stored_;
};

}  // namespace

std::unique_ptr<StoredFormat> make_fp8_format(const StoredQuantization& stored) {
  return std::make_unique<Fp8>(stored);
}

}  // namespace qft::model
