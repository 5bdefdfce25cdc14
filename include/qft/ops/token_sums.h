// Weight gradients: sums over tokens.
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// out += a^T b.
struct TokenSum {
  at::Tensor out;   ///< [m, n], a's dtype or a wider one, any strides
  at::Tensor a, b;  ///< [t, m] and [t, n], one dtype, contiguous elements within a row
};

/// Computes all sums; all must have the same number of tokens t. Uses the tiled kernels for bf16 on the CPU (fp32 sums),
/// otherwise ATen.
void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

/// Workspace bytes for the gradients [m, n] of all sums in a call: `rows` is the largest m, `columns` the sum of all n.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType compute,
                             at::ScalarType grad);

}  // namespace qft::ops
