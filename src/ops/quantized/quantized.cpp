#include "qft/ops/quantized.h"

#include "qft/core/error.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized_tables.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

namespace qft::ops {
namespace {

constexpr std::int64_t kPiece = kFourBitBlock << 14;  ///< numbers that are widened to fp32 at a time
constexpr float kZeroBlockScale = 1e-38F;             ///< bitsandbytes' scale for all-zero blocks

/// The 4-bit codes in ascending order of their values, and the bounds between them.
struct FourBits {
  std::array<std::uint8_t, 16> order{};
  std::array<float, 15> bounds{};

  explicit FourBits(QuantFormat format) {
    std::array<float, 16> table = four_bit_values(format);
    const at::Tensor ranked = at::argsort(at::from_blob(table.data(), {16}, at::kFloat));
    for (std::size_t i = 0; i < 16; ++i) order[i] = static_cast<std::uint8_t>(ranked.data_ptr<std::int64_t>()[i]);
    for (std::size_t i = 0; i < 15; ++i) bounds[i] = (table[order[i]] + table[order[i + 1]]) / 2.0F;
  }

  std::uint8_t code(float x) const {
    std::size_t rank = 0;
    for (const float bound : bounds) rank += x > bound ? 1 : 0;
    return order[rank];
  }
};

float max_magnitude(const float* values, std::int64_t count) {
  float most = 0.0F;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(values[i]));
  return most;
}

/// Quantises one block. Like bitsandbytes, multiplies whole blocks by the inverse scale and divides a partial last block.
void quantize_block(const FourBits& table, const float* values, std::int64_t count, std::uint8_t* codes, float& scale) {
  scale = max_magnitude(values, count);
  const bool whole = count == kFourBitBlock;
  if (!whole) scale = std::max(scale, kZeroBlockScale);
  const float inverse = 1.0F / std::max(scale, kZeroBlockScale);
  const auto code = [&](std::int64_t i) {
    const float scaled = i >= count ? 0.0F : whole ? values[i] * inverse : values[i] / scale;
    return table.code(std::clamp(scaled, -1.0F, 1.0F));
  };
  for (std::int64_t i = 0; i < count; i += 2) codes[i / 2] = static_cast<std::uint8_t>(code(i) << 4 | code(i + 1));
}

void quantize_row(QuantFormat format, const float* values, std::int64_t count, std::uint8_t* codes, float& scale) {
  const float most = max_magnitude(values, count);
  if (format == QuantFormat::int8) {
    scale = most;
    const float whole = 1.0F / most * 127.0F, factor = std::isfinite(whole) ? whole : 0.0F;  // zero, or nearly zero, rows
    for (std::int64_t i = 0; i < count; ++i)
      codes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(std::nearbyint(values[i] * factor)));
    return;
  }
  scale = most / 448.0F;
  if (scale == 0.0F) scale = 1.0F;  // the row is zero, or so small that the quotient underflows in fp32
  const at::Tensor row = at::from_blob(const_cast<float*>(values), {count}, at::kFloat);
  const at::Tensor rounded = (row / scale).clamp(-448.0, 448.0).to(at::kFloat8_e4m3fn);
  std::memcpy(codes, rounded.data_ptr(), static_cast<std::size_t>(count));
}

/// Returns the code nearest to x. Like bitsandbytes, first rounds x to one of 2^16 steps.
std::uint8_t nearest(float exact) {
  constexpr float kStep = 32767.5F;
  const float x = std::floor((exact + 1.0F) * kStep + 0.5F) / kStep - 1.0F;
  const auto& map = dynamic_map(true);
  const auto above = std::upper_bound(map.begin(), map.end(), x);
  auto best = above == map.begin() ? above : above - 1;
  if (above != map.end() && std::abs(*above - x) < std::abs(*best - x)) best = above;
  return static_cast<std::uint8_t>(best - map.begin());
}

/// Quantises the scales minus their mean; stores the mean after the scales' scales.
void store_nested_scales(const QuantizedLayout& layout, const at::Tensor& scales, std::uint8_t* bytes) {
  const float mean = scales.mean().item<float>();
  const at::Tensor rest = scales - mean;
  const float* values = rest.data_ptr<float>();
  auto* nested = reinterpret_cast<float*>(bytes + layout.nested_scales);
  for (std::int64_t begin = 0; begin < rest.numel(); begin += kNestedBlock) {
    const std::int64_t count = std::min(kNestedBlock, rest.numel() - begin);
    const float most = max_magnitude(values + begin, count);
    *nested++ = most;
    const float inverse = 1.0F / most;
    for (std::int64_t i = begin; i < begin + count; ++i)
      bytes[layout.scales + i] = nearest(most > 0.0F ? values[i] * inverse : 0.0F);
  }
  *nested = mean;
}

}  // namespace

void quantize(const at::Tensor& values, const QuantizedLayout& layout, const at::Tensor& bytes) {
  QFT_ASSERT(values.numel() == layout.numel() && bytes.numel() == layout.bytes && values.is_cpu() && bytes.is_cpu(),
             "got {} values and {} bytes, the layout has {} values and {} bytes", values.numel(), bytes.numel(), layout.numel(),
             layout.bytes);
  const bool by_rows = layout.kind == Quantization{QuantFormat::int8} || layout.kind == Quantization{QuantFormat::fp8};
  QFT_ASSERT(in_blocks(layout.kind.format) || by_rows, "qft reads {} but cannot write it", describe(layout.kind));
  const at::Tensor flat = values.reshape(-1);
  auto* const to = bytes.zero_().data_ptr<std::uint8_t>();
  const QuantFormat format = layout.kind.format;
  const FourBits table(format == QuantFormat::fp4 ? format : QuantFormat::nf4);
  at::Tensor scales = at::empty({layout.blocks()}, at::kFloat);
  const std::int64_t block = layout.block(), blocks_at_once = std::max<std::int64_t>(1, kPiece / block);
  for (std::int64_t first = 0; first < layout.blocks(); first += blocks_at_once) {
    const std::int64_t begin = first * block, count = std::min(blocks_at_once * block, layout.numel() - begin);
    const at::Tensor piece = flat.narrow(0, begin, count).to(at::kFloat).contiguous();
    require(std::isfinite(piece.sum().item<float>()) || piece.isfinite().all().item<bool>(),
            "a weight is not finite; quantisation would hide this");
    const float* from = piece.data_ptr<float>();
    const std::int64_t blocks = (count + block - 1) / block;
    at::parallel_for(0, blocks, std::max<std::int64_t>(1, 4096 / block), [&](std::int64_t b0, std::int64_t b1) {
      for (std::int64_t b = b0; b < b1; ++b) {
        const std::int64_t at = begin + b * block, n = std::min(block, count - b * block);
        float& scale = scales.data_ptr<float>()[first + b];
        if (four_bits(format))
          quantize_block(table, from + b * block, n, to + at / 2, scale);
        else
          quantize_row(format, from + b * block, n, to + at, scale);
      }
    });
  }
  if (layout.kind.nested) return store_nested_scales(layout, scales, to);
  std::memcpy(to + layout.scales, scales.data_ptr(), static_cast<std::size_t>(scales.nbytes()));
}

}  // namespace qft::ops
