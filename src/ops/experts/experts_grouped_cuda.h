// Grouped products: all experts' rows in one call, on devices that support this. Private to ops.
#pragma once

#include "qft/ops/experts.h"

#include <cstddef>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// Calls body(expert, first row, rows) for each expert with rows.
template <class F>
void for_each_expert(const ExpertRows& grouped_rows, const F& body) {
  for (std::size_t e = 0; e + 1 < grouped_rows.begins.size(); ++e)
    if (const std::int64_t rows = grouped_rows.begins[e + 1] - grouped_rows.begins[e]; rows > 0)
      body(static_cast<std::int64_t>(e), grouped_rows.begins[e], rows);
}

/// Computes a b per group as a new tensor, with fp32 sums; undefined if the device does not support the operands. a and b have
/// one dtype.
///   rows:  a [R, K], b [groups, K, N]: rows [ends[g - 1], ends[g]) of a times b[g]; [R, N]
///   sums:  a [M, R], b [R, N]: columns of a times rows of b; [groups, M, N], zero for an empty group
///   ends   int32 [groups], on the device
using GroupedProduct = at::Tensor (*)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends);

/// Run experts_forward() and experts_backward() with `product`. Return false and do nothing if this is unsupported: with dropout
/// (masks differ per expert), DoRA or OFT, or if the product rejects the operands.
bool grouped_forward(GroupedProduct product, const ExpertRows& grouped_rows, const at::Tensor& x, const LinearWeights& stack,
                     const LoraDropout& dropout, const at::Tensor& y, const at::Tensor& saved);
bool grouped_backward(GroupedProduct product, const ExpertRows& grouped_rows, const LinearBackward& tensors,
                      const LinearWeights& stack, const LoraDropout& dropout, const LinearGrads& grads, Workspace& workspace);

}  // namespace qft::ops
