// Selects the CPU's matrix products.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

namespace qft::ops {

/// Enables oneDNN for fp32 products ("medium" precision) if a trial on this processor shows errors close to BLAS's. On some
/// processors oneDNN is twice as fast; on others it rounds more, even to bf16, and stays disabled. The first call runs the trial.
/// Sets a process-wide option at each call. Returns whether oneDNN is enabled.
bool choose_fp32_matmul();

/// True if bf16 products run in tiles on this processor: a few compiled kernels then serve any number of tokens.
bool blocked_bf16_matmul();

/// Bytes that the CPU's product allocates to copy a left-hand side [m, k], or some of its rows.
std::int64_t operand_copy_bytes(std::int64_t m, std::int64_t k, at::ScalarType dtype);

}  // namespace qft::ops
