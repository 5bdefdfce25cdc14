// Products of bf16 on the CPU with few columns, such as LoRA's, in fp32 without a widened copy of the other side.
#pragma once

#include "qft/ops/token_sums.h"

#include <span>

#include "matmul_blocked.h"

namespace qft::ops::narrow {

/// Whether a product, or a sum, is one of these; of operands that blocks would take.
bool serves(const blocked::Product& product);
bool serves(const TokenSum& sum);

void multiply(const blocked::Product& product, Workspace& workspace);
void add_token_sums(std::span<const TokenSum> sums, Workspace& workspace);

}  // namespace qft::ops::narrow
