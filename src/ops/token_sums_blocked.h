// Sums over tokens on the CPU by blocks that stay in the cache.
#pragma once

#include "qft/ops/token_sums.h"

#include <cstdint>
#include <span>

#include "brgemm.h"

namespace qft::ops::blocked {

/// For operands in bf16 and sums in fp32 or bf16, these rounded once in kSumChunk tokens. False, having done nothing, where it
/// does not serve: the caller has another way.
bool add_token_sums(std::span<const TokenSum> sums, Workspace& workspace, Blocks blocks = faster_blocks(at::kBFloat16));

/// Tokens whose right-hand sides are held packed at a time.
inline constexpr std::int64_t kSumChunk = 1024;

/// ops::token_sum_bytes where it serves.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType grad);

}  // namespace qft::ops::blocked
