// Quantised tensors in every format, for tests of decoding.
#pragma once

#include "qft/ops/quantized.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/zeros.h>

namespace qft::ops::testing {

inline constexpr Quantization kKinds[] = {{QuantFormat::nf4, false}, {QuantFormat::nf4, true}, {QuantFormat::fp4, false},
                                          {QuantFormat::fp4, true},  {QuantFormat::int8},      {QuantFormat::fp8}};
inline constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{1, 1}, {3, 5}, {7, 64}, {5, 77}, {129, 130}, {300, 260}};

inline at::Tensor quantized(const at::Tensor& values, const QuantizedLayout& layout) {
  at::Tensor bytes = at::empty({layout.bytes}, at::kByte);
  quantize(values, layout, bytes);
  return bytes;
}

/// Formats that exist only in files: tiles, groups, reordered columns.
inline constexpr Quantization kStoredKinds[] = {{.format = QuantFormat::fp8, .columns = 16, .tile_rows = 4},
                                                {.format = QuantFormat::groups4, .columns = 32},
                                                {.format = QuantFormat::groups4, .columns = 32, .ordered = true},
                                                {.format = QuantFormat::groups4},
                                                {.format = QuantFormat::groups8, .columns = 24},
                                                {.format = QuantFormat::groups8, .columns = 24, .ordered = true}};
inline constexpr std::pair<std::int64_t, std::int64_t> kStoredShapes[] = {{1, 2}, {3, 64}, {7, 96}, {9, 40}, {130, 258}};

inline at::Tensor stored_bytes(const QuantizedLayout& layout) {
  at::Tensor bytes = at::zeros({layout.bytes}, at::kByte);
  const bool fp8 = layout.kind.format == QuantFormat::fp8, four = layout.kind.format == QuantFormat::groups4;
  bytes.narrow(0, 0, layout.code_bytes()).random_(0, fp8 ? 127 : 256);  // no NaN
  bytes.narrow(0, layout.scales, 4 * layout.blocks()).view(at::kFloat).uniform_(0.5, 1.5);
  if (!in_groups(layout.kind.format)) return bytes;
  bytes.narrow(0, layout.zeros, layout.blocks()).random_(0, four ? 16 : 256);
  if (layout.kind.ordered) bytes.narrow(0, layout.order, 4 * layout.columns).view(at::kInt).copy_(at::randperm(layout.columns));
  return bytes;
}

}  // namespace qft::ops::testing
