// Which of the CPU's fp32 matrix products runs.
#pragma once

namespace qft::model::ops {

/// Lets fp32 products go to oneDNN ("medium" precision) where a trial on this processor shows errors like those of BLAS: on
/// some it is twice as fast; on others it rounds more, or even to bf16, and is not used. Sets the process's option; the
/// first call tries.
/// Returns whether oneDNN is used.
bool choose_fp32_matmul();

}  // namespace qft::model::ops
