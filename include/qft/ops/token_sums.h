// Gradients of weights: sums over tokens.
#pragma once

#include "qft/ops/workspace.h"

#include <cstdint>
#include <span>

#include <ATen/core/Tensor.h>

namespace qft::ops {

/// out += a^T b.
struct TokenSum {
  at::Tensor out;   ///< [m, n], of a's dtype or a wider one, any strides
  at::Tensor a, b;  ///< [t, m] and [t, n], of one dtype, rows of successive elements
};

/// All sums of a call are over the same number of tokens t. By blocks where they serve (bf16 on the CPU: summed in
/// fp32), by ATen elsewhere.
void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

/// Bytes of the workspace that gradients [m, n] of all sums of a call take: `rows` is the largest m, `columns` the sum of the n.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType compute,
                             at::ScalarType grad);

}  // namespace qft::ops
