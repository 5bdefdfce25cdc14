// Tiled sums over tokens on the CPU.
#pragma once

#include "qft/ops/token_sums.h"

#include <cstdint>
#include <span>

#include "brgemm_cpu.h"

namespace qft::ops::blocked {

/// Adds sums with bf16 operands in fp32 or bf16; bf16 results are rounded once per kSumChunk tokens. Returns false and does
/// nothing if unsupported; the caller then uses another path.
bool add_token_sums(std::span<const TokenSum> sums, Workspace& workspace,
                    TileType tile_type = preferred_tile_type(at::kBFloat16));

/// Tokens whose packed right-hand sides are held at a time.
inline constexpr std::int64_t kSumChunk = 1024;

/// ops::token_sum_bytes for supported sums.
std::int64_t token_sum_bytes(std::int64_t tokens, std::int64_t rows, std::int64_t columns, at::ScalarType grad);

}  // namespace qft::ops::blocked
