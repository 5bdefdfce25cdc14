// bf16 products on the CPU with few columns, such as LoRA's: computed in fp32 without a widened copy of the large side.
#pragma once

#include "qft/ops/token_sums.h"

#include <span>

#include "matmul_blocked_cpu.h"

namespace qft::ops::narrow {

/// True if this product or sum is narrow; operands must be valid for the tiled products.
bool supports(const blocked::Product& product);
bool supports(const TokenSum& sum);
/// True for sums with at most `rows` rows and gradients in `grad`.
bool supports(std::int64_t rows, at::ScalarType grad);

void multiply(const blocked::Product& product, Workspace& workspace);
void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

/// Workspace bytes for LoRA's sums in a projection group: one call sums the gradients of all its B and A, with `rows` rows each.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows);

}  // namespace qft::ops::narrow
