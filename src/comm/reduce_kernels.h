// Element-wise reductions on host buffers, and the widening of half types.
#pragma once

#include "qft/comm/communicator.h"
#include "qft/core/dtype.h"

#include <cstddef>

namespace qft::comm {

/// Returns the type in which partial results of `dtype` travel and are summed: f32 for f16 and bf16, otherwise `dtype`.
DType accumulation_type(DType dtype);

/// Computes accumulated[i] = accumulated[i] op own[i]; `accumulated` has accumulation_type(dtype).
void combine(void* accumulated, const void* own, std::size_t count, DType dtype, ReduceOp op);

/// Computes to[i] = from[i], from `dtype` to accumulation_type(dtype).
void widen(void* to, const void* from, std::size_t count, DType dtype);

/// Inverse of widen, rounding to nearest even. `to` may alias `from` only if the types are the same.
void narrow(void* to, const void* from, std::size_t count, DType dtype);

}  // namespace qft::comm
