// Weights in the formats of GPTQ and AWQ: integers in 32-bit words, with a scale and a zero point per group of inputs and output.
#include "qft/core/error.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "stored_format.h"
#include <ATen/Parallel.h>

namespace qft::model {
namespace {

using ops::QuantizedLayout;
using Words = std::vector<std::uint32_t>;

const std::vector<DType> kScales{DType::f16, DType::bf16, DType::f32}, kWords{DType::i32};

Words read_words(const io::ModelFiles& files, const std::string& name, std::int64_t& read) {
  const std::vector<char> bytes = read_tensor(files, name, read);
  Words words(bytes.size() / sizeof(std::uint32_t));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

/// Tensors common to both: qweight, qzeros [groups, out / integers per word] and scales [groups, out].
class Groups : public StoredFormat {
 public:
  explicit Groups(const StoredQuantization& stored)
      : stored_(stored), bits_(ops::four_bits(stored.kind.format) ? 4 : 8), in_word_(32 / bits_) {}

  ops::Quantization kind(const io::ModelFiles& files, const std::string& weight) const override {
    return files.find(beside(weight, ".qweight")) == nullptr ? ops::Quantization{} : stored_.kind;
  }

  std::vector<std::string> tensors(const std::string& weight) const override {
    return {beside(weight, ".qweight"), beside(weight, ".qzeros"), beside(weight, ".scales"), beside(weight, ".g_idx")};
  }

  void check(const io::ModelFiles& files, const std::string& weight, const QuantizedLayout& layout) const override {
    const std::string where = files.at(beside(weight, ".qweight")).file->path().string();
    require(layout.rows % in_word_ == 0 && layout.columns % in_word_ == 0,
            "'{}': '{}' is {} x {}, and neither size is a multiple of {} (integers per word): the model cannot be in this format",
            where, weight, layout.rows, layout.columns, in_word_);
    const std::int64_t groups = layout.blocks_per_row();
    require_tensor(files, beside(weight, ".qweight"), shape_of_codes(layout), kWords);
    require_tensor(files, beside(weight, ".qzeros"), {groups, layout.rows / in_word_}, kWords);
    require_tensor(files, beside(weight, ".scales"), {groups, layout.rows}, kScales);
    if (stored_.kind.ordered || files.find(beside(weight, ".g_idx")) != nullptr)
      require_tensor(files, beside(weight, ".g_idx"), {layout.columns}, kWords);
  }

  std::int64_t read(const io::ModelFiles& files, const std::string& weight, const QuantizedLayout& layout,
                    std::uint8_t* bytes) const override {
    std::int64_t count = 0;
    const std::vector<std::int32_t> order = order_of(files, weight, layout, count);
    if (layout.kind.ordered) std::memcpy(bytes + layout.order, order.data(), order.size() * sizeof(std::int32_t));
    const Words codes = read_words(files, beside(weight, ".qweight"), count);
    const Words zeros = read_words(files, beside(weight, ".qzeros"), count);
    const std::vector<float> scales = read_floats(files, beside(weight, ".scales"), count);
    const std::int64_t groups = layout.blocks_per_row(), columns = layout.columns;
    at::parallel_for(0, layout.rows, std::max<std::int64_t>(1, 4096 / columns), [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::uint8_t> row(static_cast<std::size_t>(columns));
      for (std::int64_t r = begin; r < end; ++r) {
        codes_of_row(codes, layout, r, row.data());
        write_row(row, order, layout, bytes, r);
        for (std::int64_t g = 0; g < groups; ++g) {
          const std::int64_t to = r * groups + g;
          bytes[layout.zeros + to] = zero_at(zeros, layout, g, r);
          std::memcpy(bytes + layout.scales + 4 * to, &scales[static_cast<std::size_t>(g * layout.rows + r)], sizeof(float));
        }
      }
    });
    return count;
  }

 protected:
  virtual std::vector<std::int64_t> shape_of_codes(const QuantizedLayout& layout) const = 0;
  /// Extracts the codes [columns] of an output.
  virtual void codes_of_row(const Words& codes, const QuantizedLayout& layout, std::int64_t row, std::uint8_t* to) const = 0;
  virtual std::uint8_t zero_at(const Words& zeros, const QuantizedLayout& layout, std::int64_t group, std::int64_t row) const = 0;

  std::uint8_t number(std::uint32_t word, std::int64_t place) const {
    return static_cast<std::uint8_t>(word >> (bits_ * place) & mask());
  }
  std::uint32_t mask() const { return (1U << bits_) - 1; }

  StoredQuantization stored_;
  std::int64_t bits_, in_word_;  ///< bits per integer; integers per word

 private:
  /// Returns the input columns in storage order: by group, ascending within a group.
  std::vector<std::int32_t> order_of(const io::ModelFiles& files, const std::string& weight, const QuantizedLayout& layout,
                                     std::int64_t& count) const {
    std::vector<std::int32_t> order(static_cast<std::size_t>(layout.columns));
    std::iota(order.begin(), order.end(), 0);
    const std::string name = beside(weight, ".g_idx");
    if (files.find(name) == nullptr) return order;
    const std::string where = fmt::format("'{}': tensor '{}'", files.at(name).file->path().string(), name);
    const Words group_of = read_words(files, name, count);
    const std::int64_t groups = layout.blocks_per_row(), block = layout.block();
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups));
    for (std::size_t i = 0; i < group_of.size(); ++i) {
      require(group_of[i] < groups, "{}: column {} is in group {}, but there are {}: is the file damaged?", where, i,
              static_cast<std::int32_t>(group_of[i]), groups);
      require(stored_.kind.ordered || group_of[i] == i / static_cast<std::size_t>(block),
              "{}: column {} is in group {}, but without act order (desc_act in quantization_config is false, or group_size is "
              "-1) it must be in group {}: is the file damaged?",
              where, i, group_of[i], i / static_cast<std::size_t>(block));
      ++sizes[group_of[i]];
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t expected = std::min(block, layout.columns - g * block);
      require(sizes[static_cast<std::size_t>(g)] == expected,
              "{}: group {} has {} columns, expected {} ({} columns in groups of {}): is the file damaged?", where, g,
              sizes[static_cast<std::size_t>(g)], expected, layout.columns, block);
    }
    std::ranges::stable_sort(order, {}, [&](std::int32_t column) { return group_of[static_cast<std::size_t>(column)]; });
    return order;
  }

  void write_row(const std::vector<std::uint8_t>& codes, const std::vector<std::int32_t>& order, const QuantizedLayout& layout,
                 std::uint8_t* bytes, std::int64_t row) const {
    const auto code = [&](std::int64_t place) { return codes[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])]; };
    const std::int64_t first = row * layout.columns;
    if (bits_ == 8) {
      for (std::int64_t i = 0; i < layout.columns; ++i) bytes[first + i] = code(i);
      return;
    }
    for (std::int64_t i = 0; i < layout.columns; i += 2)
      bytes[(first + i) / 2] = static_cast<std::uint8_t>(code(i) << 4 | code(i + 1));
  }
};

/// qweight [in / integers per word, out]: a word holds consecutive inputs, the first in its lowest bits; a word of qzeros holds
/// consecutive outputs in the same way.
class Gptq : public Groups {
  using Groups::Groups;

  std::vector<std::int64_t> shape_of_codes(const QuantizedLayout& layout) const override {
    return {layout.columns / in_word_, layout.rows};
  }
  void codes_of_row(const Words& codes, const QuantizedLayout& layout, std::int64_t row, std::uint8_t* to) const override {
    for (std::int64_t k = 0; k < layout.columns / in_word_; ++k) {
      const std::uint32_t word = codes[static_cast<std::size_t>(k * layout.rows + row)];
      for (std::int64_t j = 0; j < in_word_; ++j) *to++ = number(word, j);
    }
  }
  std::uint8_t zero_at(const Words& zeros, const QuantizedLayout& layout, std::int64_t group, std::int64_t row) const override {
    const std::uint8_t zero = number(zeros[static_cast<std::size_t>((group * layout.rows + row) / in_word_)], row % in_word_);
    return stored_.zeros_minus_one ? static_cast<std::uint8_t>((zero + 1U) & mask()) : zero;
  }
};

/// qweight [in, out / 8]: a word holds eight consecutive outputs, in the order of AutoAWQ's kernels.
class Awq : public Groups {
  using Groups::Groups;

  /// Position of each of eight outputs in a word; output 1 is the fifth.
  static constexpr std::array<std::int64_t, 8> kPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

  std::vector<std::int64_t> shape_of_codes(const QuantizedLayout& layout) const override {
    return {layout.columns, layout.rows / in_word_};
  }
  void codes_of_row(const Words& codes, const QuantizedLayout& layout, std::int64_t row, std::uint8_t* to) const override {
    const std::int64_t words = layout.rows / in_word_, place = kPlaces[static_cast<std::size_t>(row % in_word_)];
    for (std::int64_t i = 0; i < layout.columns; ++i)
      to[i] = number(codes[static_cast<std::size_t>(i * words + row / in_word_)], place);
  }
  std::uint8_t zero_at(const Words& zeros, const QuantizedLayout& layout, std::int64_t group, std::int64_t row) const override {
    return number(zeros[static_cast<std::size_t>((group * layout.rows + row) / in_word_)],
                  kPlaces[static_cast<std::size_t>(row % in_word_)]);
  }
};

}  // namespace

std::unique_ptr<StoredFormat> make_gptq_format(const StoredQuantization& stored) {
  return std::make_unique<Gptq>(stored);
}

std::unique_ptr<StoredFormat> make_awq_format(const StoredQuantization& stored) {
  return std::make_unique<Awq>(stored);
}

}  // namespace qft::model
