#include "qft/core/error.h"
#include "qft/ops/cpu/quantized_kernels.h"
#include "qft/ops/dynamic_map.h"
#include "qft/ops/quantized.h"

#include <algorithm>
#include <cstring>

#include "quantized_tables.h"
#include "tensor_args.h"
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>

namespace qft::ops {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 20;  ///< numbers at a time where they are decoded by ATen's calls

template <std::size_t N>
at::Tensor on_device(const std::array<float, N>& table, c10::Device device) {
  return at::from_blob(const_cast<float*>(table.data()), {static_cast<std::int64_t>(N)}, at::kFloat)
      .to(device, at::kFloat, false, true);
}

at::Tensor floats_at(const at::Tensor& bytes, std::int64_t begin, std::int64_t count) {
  return bytes.narrow(0, begin, 4 * count).view(at::kFloat);
}

/// The scales [blocks] as fp32; a view where they are kept so.
at::Tensor scales_of(const at::Tensor& bytes, const QuantizedLayout& layout) {
  const std::int64_t blocks = layout.blocks();
  if (!layout.kind.nested) return floats_at(bytes, layout.scales, blocks);
  const std::int64_t nested = (blocks + kNestedBlock - 1) / kNestedBlock;
  const at::Tensor numbers =
      at::index_select(on_device(dynamic_map(true), bytes.device()), 0, bytes.narrow(0, layout.scales, blocks).to(at::kInt));
  const at::Tensor each = floats_at(bytes, layout.nested_scales, nested).repeat_interleave(kNestedBlock).narrow(0, 0, blocks);
  return (numbers * each).add_(floats_at(bytes, layout.nested_scales + 4 * nested, 1));
}

/// The numbers [first, first + count) without their scales, fp32.
at::Tensor numbers_of(const at::Tensor& bytes, const QuantizedLayout& layout, std::int64_t first, std::int64_t count) {
  switch (layout.kind.format) {
    case QuantFormat::int8:
      return bytes.narrow(0, first, count).view(at::kChar).to(at::kFloat);
    case QuantFormat::fp8:
      return bytes.narrow(0, first, count).view(at::kFloat8_e4m3fn).to(at::kFloat);
    default: {
      const at::Tensor pairs = bytes.narrow(0, first / 2, (count + 1) / 2);
      const at::Tensor codes = at::stack({pairs.__rshift__(4), pairs.__and__(15)}, 1).view(-1).narrow(0, 0, count);
      return at::index_select(on_device(table_of(layout.kind.format), bytes.device()), 0, codes.to(at::kInt));
    }
  }
}

template <class T>
void decode_block(const cpu::QuantizedKernels<T>& kernels, const QuantizedLayout& layout, const std::uint8_t* codes, float scale,
                  T* out, std::int64_t first, std::int64_t count) {
  switch (layout.kind.format) {
    case QuantFormat::int8:
      return kernels.int8(reinterpret_cast<const std::int8_t*>(codes) + first, scale, out + first, count);
    case QuantFormat::fp8:
      return kernels.fp8(codes + first, scale, out + first, count);
    default:
      return kernels.four_bits(codes + first / 2, table_of(layout.kind.format).data(), scale, out + first, count);
  }
}

template <class T>
void decode_cpu(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  const auto kernels = cpu::quantized_kernels<T>();
  const at::Tensor scales = scales_of(bytes, layout);
  const float* scale = scales.data_ptr<float>();
  const auto* codes = bytes.data_ptr<std::uint8_t>();
  T* const to = data<T>(out);
  const std::int64_t block = layout.block();
  at::parallel_for(0, layout.blocks(), std::max<std::int64_t>(1, 16384 / block), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b)
      decode_block(kernels, layout, codes, scale[b], to, b * block, std::min(block, layout.numel() - b * block));
  });
}

}  // namespace

void dequantize_generic(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  constexpr double kOf127 = 0.007874015718698502;
  const at::Tensor scales = scales_of(bytes, layout);
  const std::int64_t block = layout.block(), blocks_at_once = std::max<std::int64_t>(1, kPiece / block);
  for (std::int64_t b = 0; b < layout.blocks(); b += blocks_at_once) {
    const std::int64_t first = b * block, count = std::min(blocks_at_once * block, layout.numel() - first),
                       whole = count / block * block;
    const at::Tensor numbers = numbers_of(bytes, layout, first, count);
    numbers.narrow(0, 0, whole).view({-1, block}).mul_(scales.narrow(0, b, whole / block).unsqueeze(1));
    if (whole < count) numbers.narrow(0, whole, count - whole).mul_(scales.narrow(0, b + whole / block, 1));
    if (layout.kind.format == QuantFormat::int8) numbers.mul_(kOf127);
    out.narrow(0, first, count).copy_(numbers);
  }
}

void dequantize(const at::Tensor& bytes, const QuantizedLayout& layout, const at::Tensor& out) {
  QFT_ASSERT(bytes.numel() == layout.bytes && out.numel() == layout.numel() && out.is_contiguous(),
             "{} bytes to {} values, of a tensor of {} values in {} bytes", bytes.numel(), out.numel(), layout.numel(),
             layout.bytes);
  if (bytes.is_cpu() && out.scalar_type() == at::kBFloat16) return decode_cpu<cpu::Bf16>(bytes, layout, out);
  if (bytes.is_cpu() && out.scalar_type() == at::kFloat) return decode_cpu<float>(bytes, layout, out);
  dequantize_generic(bytes, layout, out);
}

}  // namespace qft::ops
