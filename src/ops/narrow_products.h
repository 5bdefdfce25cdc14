// Products of bf16 on the CPU with few columns, such as LoRA's, in fp32 without a widened copy of the other side.
#pragma once

#include "qft/ops/token_sums.h"

#include <span>

#include "matmul_blocked.h"

namespace qft::ops::narrow {

/// Whether a product, or a sum, is one of these; of operands that blocks would take.
bool serves(const blocked::Product& product);
bool serves(const TokenSum& sum);
/// Whether sums of so many rows at most are.
bool serves(std::int64_t rows, at::ScalarType grad);

void multiply(const blocked::Product& product, Workspace& workspace);
void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

/// Bytes of the workspace that LoRA's sums of a module take: those of all its B, and of its A, of `rows` rows each.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows);

}  // namespace qft::ops::narrow
