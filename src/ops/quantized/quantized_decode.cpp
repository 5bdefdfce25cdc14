#include "qft/core/error.h"
#include "qft/ops/cpu/quantized_kernels.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized.h"
#include "qft/ops/quantized_tables.h"

#include <algorithm>
#include <vector>

#include "../common/device_kernels.h"
#include "../common/tensor_args.h"
#include "block_scales.h"
#include "quantized_rows_cuda.h"
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

namespace qft::ops {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  ///< numbers at a time in the ATen path
constexpr std::int64_t kGrain = 16384;                  ///< numbers per thread, at least

template <std::size_t N>
at::Tensor on_device(const std::array<float, N>& table, c10::Device device) {
  return at::from_blob(const_cast<float*>(table.data()), {static_cast<std::int64_t>(N)}, at::kFloat)
      .to(device, at::kFloat, false, true);
}

at::Tensor floats_at(const at::Tensor& bytes, std::int64_t begin, std::int64_t count) {
  return bytes.narrow(0, begin, 4 * count).view(at::kFloat);
}

/// Returns the scales [blocks] as fp32; a view unless they are nested.
at::Tensor scales_of(const at::Tensor& bytes, const QuantizedLayout& layout) {
  const std::int64_t blocks = layout.blocks();
  if (!layout.kind.nested) return floats_at(bytes, layout.scales, blocks);
  const std::int64_t nested = (blocks + kNestedBlock - 1) / kNestedBlock;
  const at::Tensor numbers =
      at::index_select(on_device(dynamic_map(true), bytes.device()), 0, bytes.narrow(0, layout.scales, blocks).to(at::kInt));
  const at::Tensor each = floats_at(bytes, layout.nested_scales, nested).repeat_interleave(kNestedBlock).narrow(0, 0, blocks);
  return (numbers * each).add_(floats_at(bytes, layout.nested_scales + 4 * nested, 1));
}

/// Returns numbers [first, first + count) before scaling, fp32; for groups also before subtracting zero points.
at::Tensor numbers_of(const at::Tensor& bytes, const QuantizedLayout& layout, std::int64_t first, std::int64_t count) {
  const QuantFormat format = layout.kind.format;
  if (four_bits(format)) {
    const at::Tensor pairs = bytes.narrow(0, first / 2, (count + 1) / 2);
    const at::Tensor codes = at::stack({pairs.__rshift__(4), pairs.__and__(15)}, 1).view(-1).narrow(0, 0, count);
    if (format == QuantFormat::groups4) return codes.to(at::kFloat);
    return at::index_select(on_device(four_bit_values(format), bytes.device()), 0, codes.to(at::kInt));
  }
  const at::Tensor codes = bytes.narrow(0, first, count);
  if (format == QuantFormat::int8) return codes.view(at::kChar).to(at::kFloat);
  return format == QuantFormat::fp8 ? codes.view(at::kFloat8_e4m3fn).to(at::kFloat) : codes.to(at::kFloat);
}

void decode_blocks_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  const at::Tensor scales = scales_of(bytes, layout);
  const std::int64_t block = layout.block(), blocks_at_once = kPiece / block;
  for (std::int64_t b = 0; b < layout.blocks(); b += blocks_at_once) {
    const std::int64_t first = b * block, count = std::min(blocks_at_once * block, layout.numel() - first),
                       whole = count / block * block;
    const at::Tensor numbers = numbers_of(bytes, layout, first, count);
    numbers.narrow(0, 0, whole).view({-1, block}).mul_(scales.narrow(0, b, whole / block).unsqueeze(1));
    if (whole < count) numbers.narrow(0, whole, count - whole).mul_(scales.narrow(0, b + whole / block, 1));
    out.narrow(0, first, count).copy_(numbers);
  }
}

void decode_rows_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  const std::int64_t tile = layout.kind.tile_rows, columns = layout.columns, across = layout.blocks_per_row();
  const at::Tensor scales = scales_of(bytes, layout).view({-1, across});
  const at::Tensor matrix = out.view({layout.rows, columns});
  /// Expands rows [first, first + count) of a per-tile or per-group tensor to one value per number.
  const auto for_each_number = [&](const at::Tensor& parts, std::int64_t first, std::int64_t count) {
    const at::Tensor rows = parts.narrow(0, first / tile, (count + tile - 1) / tile).repeat_interleave(std::min(tile, count), 0);
    return rows.narrow(0, 0, count).repeat_interleave(std::min(layout.block(), columns), 1).narrow(1, 0, columns);
  };
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / columns / tile) * tile;
  for (std::int64_t first = 0; first < layout.rows; first += step) {
    const std::int64_t count = std::min(step, layout.rows - first);
    const at::Tensor numbers = numbers_of(bytes, layout, first * columns, count * columns).view({count, columns});
    if (in_groups(layout.kind.format))
      numbers.sub_(for_each_number(bytes.narrow(0, layout.zeros, layout.blocks()).view({-1, across}), first, count));
    numbers.mul_(for_each_number(scales, first, count));
    if (layout.kind.format == QuantFormat::int8) numbers.mul_(kInverse127);
    const at::Tensor to = matrix.narrow(0, first, count);
    if (layout.kind.ordered)
      to.index_copy_(1, bytes.narrow(0, layout.order, 4 * columns).view(at::kInt).to(at::kLong), numbers.to(out.scalar_type()));
    else
      to.copy_(numbers);
  }
}

template <class T>
void decode_blocks(const at::Tensor& bytes, const QuantizedLayout& layout, T* to) {
  const auto kernels = cpu::quantized_kernels<T>();
  const float* table = four_bit_values(layout.kind.format).data();
  const auto* codes = bytes.data_ptr<std::uint8_t>();
  const std::int64_t block = layout.block();
  at::parallel_for(0, layout.blocks(), kGrain / block, [&](std::int64_t begin, std::int64_t end) {
    BlockScales scales(codes, layout);
    for (std::int64_t b = begin, next = b; b < end; b = next) {
      next = std::min(end, b + kNestedBlock);
      const float* scale = scales.from(b, next - b);
      for (std::int64_t i = b; i < next; ++i)
        kernels.four_bits(codes + i * block / 2, table, scale[i - b], to + i * block,
                          std::min(block, layout.numel() - i * block));
    }
  });
}

/// Decodes rows in blocks of columns.
template <class T>
class RowDecoder {
 public:
  RowDecoder(const at::Tensor& bytes, const QuantizedLayout& layout)
      : layout_(layout),
        codes_(bytes.data_ptr<std::uint8_t>()),
        scales_(reinterpret_cast<const float*>(codes_ + layout.scales)),
        zeros_(codes_ + layout.zeros),
        order_(reinterpret_cast<const std::int32_t*>(codes_ + layout.order)) {}

  /// Returns the number of rows that decode together.
  std::int64_t together() const { return layout_.kind.ordered ? cpu::kReorderedRows<T> : 1; }
  /// Decodes rows [begin, end) to `out`; row `begin` goes to out[0].
  void decode(std::int64_t begin, std::int64_t end, T* out) const {
    const std::int64_t columns = layout_.columns, together = this->together();
    std::vector<T> places(static_cast<std::size_t>(layout_.kind.ordered ? 2 * together * columns : 0));
    for (std::int64_t row = begin; row < end; row += together, out += together * columns) {
      const std::int64_t rows = std::min(together, end - row);
      T* to = layout_.kind.ordered ? places.data() : out;
      for (std::int64_t r = 0; r < rows; ++r) decode_places(row + r, to + r * columns);
      if (!layout_.kind.ordered) continue;
      if (rows == together)
        kernels_.reorder(to, order_, to + together * columns, out, columns);
      else
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t i = 0; i < columns; ++i) out[r * columns + order_[i]] = to[r * columns + i];
    }
  }

 private:
  void decode_places(std::int64_t row, T* out) const {
    const std::int64_t block = layout_.block(), across = layout_.blocks_per_row();
    const std::int64_t scale0 = row / layout_.kind.tile_rows * across;
    for (std::int64_t b = 0; b < across; ++b) {
      const std::int64_t first = b * block, count = std::min(block, layout_.columns - first);
      decode_run(row * layout_.columns + first, scale0 + b, out + first, count);
    }
  }

  void decode_run(std::int64_t first, std::int64_t scale, T* out, std::int64_t count) const {
    switch (layout_.kind.format) {
      case QuantFormat::int8:
        return kernels_.int8(reinterpret_cast<const std::int8_t*>(codes_) + first, scales_[scale], out, count);
      case QuantFormat::fp8:
        return kernels_.fp8(codes_ + first, scales_[scale], out, count);
      case QuantFormat::groups8:
        return kernels_.group(codes_ + first, zeros_[scale], scales_[scale], out, count);
      default:
        return kernels_.four_bits(codes_ + first / 2, differences(zeros_[scale]), scales_[scale], out, count);
    }
  }

  /// Returns the 16 codes minus a zero point of at most 15.
  static const float* differences(std::uint8_t zero) {
    static constexpr std::array<float, 31> kDifferences = [] {
      std::array<float, 31> all{};
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i) - 15.0F;
      return all;
    }();
    return kDifferences.data() + (15 - std::min<int>(zero, 15));
  }

  const QuantizedLayout& layout_;
  cpu::QuantizedKernels<T> kernels_ = cpu::quantized_kernels<T>();
  const std::uint8_t* codes_;
  const float* scales_;
  const std::uint8_t* zeros_;
  const std::int32_t* order_;
};

template <class T>
void decode_cpu(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  T* const to = data<T>(out);
  if (in_blocks(layout.kind.format)) return decode_blocks(bytes, layout, to);
  const RowDecoder<T> decoder(bytes, layout);
  const std::int64_t each = decoder.together(), groups = (layout.rows + each - 1) / each;
  at::parallel_for(0, groups, std::max<std::int64_t>(1, kGrain / layout.columns / each),
                   [&](std::int64_t begin, std::int64_t end) {
                     decoder.decode(begin * each, std::min(end * each, layout.rows), to + begin * each * layout.columns);
                   });
}

}  // namespace

void dequantize_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  if (layout.kind.format == QuantFormat::fp32) return void(out.copy_(floats_at(bytes, 0, layout.numel())));
  (in_blocks(layout.kind.format) ? decode_blocks_generic : decode_rows_generic)(bytes, layout, out);
}

void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  QFT_ASSERT(bytes.numel() == layout.bytes && out.numel() == layout.numel() && out.is_contiguous(),
             "got {} bytes and {} values, the layout has {} values in {} bytes", bytes.numel(), out.numel(), layout.numel(),
             layout.bytes);
  if (layout.kind.format == QuantFormat::fp32) return dequantize_generic(bytes, layout, out);
  if (bytes.is_cpu() && out.scalar_type() == at::kBFloat16) return decode_cpu<cpu::Bf16>(bytes, layout, out);
  if (bytes.is_cpu() && out.scalar_type() == at::kFloat) return decode_cpu<float>(bytes, layout, out);
  const DeviceKernels* kernels = device_kernels(out);
  if (kernels != nullptr && kernels->dequantize(bytes, QuantizedRows::of(layout), out)) return;
  dequantize_generic(bytes, layout, out);
}

}  // namespace qft::ops
