// Matrix product for the operations: tiled on the CPU, ATen elsewhere.
#pragma once

#include "matmul_blocked_cpu.h"
#include <ATen/ops/addmm.h>

namespace qft::ops {

/// out [m, n] = scale * a [m, k] b [k, n], all of one dtype; out is neither a nor b.
inline void mm_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, Workspace& workspace, double scale = 1.0) {
  if (blocked::multiply({out, a, b, {}, scale, {}}, workspace)) return;
  at::Tensor result = out;
  if (scale != 1.0 && !out.is_cpu()) {  // in one kernel
    at::addmm_out(result, out, a, b, /*beta=*/0, scale);
    return;
  }
  at::mm_out(result, a, b);
  if (scale != 1.0) result.mul_(scale);
}

}  // namespace qft::ops
