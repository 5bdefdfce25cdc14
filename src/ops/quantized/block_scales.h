// The scales of quantised blocks, decoded. Private to ops.
#pragma once

#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized_layout.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace qft::ops {

/// The scales of consecutive blocks of nf4 or fp4.
class BlockScales {
 public:
  BlockScales(const std::uint8_t* bytes, const QuantizedLayout& layout)
      : nested_(layout.kind.nested),
        codes_(bytes + layout.scales),
        scales_(reinterpret_cast<const float*>(codes_)),
        each_(reinterpret_cast<const float*>(bytes + layout.nested_scales)),
        offset_(nested_ ? each_[(layout.blocks() + kNestedBlock - 1) / kNestedBlock] : 0.0F) {}

  /// Returns the scales of `count` blocks, starting at `first`; at most kNestedBlock. The next call overwrites them.
  const float* from(std::int64_t first, std::int64_t count) {
    if (!nested_) return scales_ + first;
    const auto& numbers = dynamic_map(true);
    for (std::int64_t i = 0; i < count; ++i)
      decoded_[static_cast<std::size_t>(i)] = numbers[codes_[first + i]] * each_[(first + i) / kNestedBlock];
    // A separate loop, because a fused multiply-add would not round in between.
    for (std::int64_t i = 0; i < count; ++i) decoded_[static_cast<std::size_t>(i)] += offset_;
    return decoded_.data();
  }

 private:
  bool nested_;
  const std::uint8_t* codes_;
  const float *scales_, *each_;
  float offset_;
  std::array<float, kNestedBlock> decoded_;
};

}  // namespace qft::ops
