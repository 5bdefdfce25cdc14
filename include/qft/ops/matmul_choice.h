// Which of the CPU's matrix products run.
#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>

namespace qft::ops {

/// Lets fp32 products go to oneDNN ("medium" precision) where a trial on this processor shows errors like those of BLAS: on
/// some it is twice as fast; on others it rounds more, or even to bf16, and is not used. Sets the process's option; the
/// first call tries. Returns whether oneDNN is used.
bool choose_fp32_matmul();

/// Whether bf16 products run by blocks on this processor: then the same few compiled kernels serve any number of tokens.
bool blocked_bf16_matmul();

/// Bytes that the CPU's product of a left-hand side [m, k] takes for a copy of it, or of some rows.
std::int64_t copied_bytes(std::int64_t m, std::int64_t k, at::ScalarType dtype);

}  // namespace qft::ops
